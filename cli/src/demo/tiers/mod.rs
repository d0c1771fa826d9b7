//! `leeward demo --service`: the tiers of a service with leaves on this machine.
//!
//! - `processes`: processes of the servers and the load. `statistics`: statistics of the tiers, and
//!   their table.

pub(crate) mod processes;
pub(crate) mod statistics;
