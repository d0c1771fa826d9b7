//! `leeward demo --service`: the tiers of a service with leaves on this machine.
//!
//! - `fleet`: their processes, and those of the load. `sight`: what the tiers tell of themselves, and the table of it.

pub(crate) mod processes;
pub(crate) mod statistics;
