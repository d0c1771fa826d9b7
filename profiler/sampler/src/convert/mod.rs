//! Records to a trace: calls from samples.
