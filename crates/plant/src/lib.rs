//! The real plant: a synthetic server on some CPUs of this machine and its clients on another, over loopback TCP, measured
//! in the terms of the simulator.
//!
//! - [`placement`]: which CPUs the two ends get.
//! - [`machine`]: what this machine can do: capacity, round trip, message costs, stalls.
//! - [`run`]: one controller under one workload.
//!
//! Linux only. Never here: scenarios and results (`leeward-lab`), sockets (`leeward-rpc`, `leeward-load`).

#![forbid(unsafe_code)]

pub mod error;
pub mod locks;
pub mod machine;
pub mod placement;
pub mod run;
mod stalls;

pub use error::RealError;
pub use leeward_services::served::Served;
pub use machine::Machine;
pub use placement::Placement;
pub use run::{RunReport, RunSpec, Snapshot};
