//! Programs that are recorded by the profiler, whose clock needs a CPU: nothing else may run beside them, so that they are a
//! program of their own and its tests run one after the other.

mod cargo;
mod profile;
