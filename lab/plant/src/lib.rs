//! The plants: whoever makes one run of a scenario and says what came of it, in the same terms ([`Plant`]).
//!
//! - [`plant`]: the trait, what it is asked for and why it may fail.
//! - [`simulated`]: the simulator.
//! - [`measured`]: this machine, a server on some CPUs and its clients on another, over loopback TCP. The rest is its parts:
//! - [`placement`]: which CPUs the two ends get.
//! - [`machine`]: what this machine can do: capacity, round trip, message costs, stalls.
//! - [`threads`]: what its threads cost: waking, changing, polling.
//! - [`ends`]: what a tier's clients and leaves take besides what they are told to.
//! - [`tier`]: a tier of the simulator's, served here with its leaves.
//! - [`leaves`]: a service with leaves, each of its servers on its part of the CPUs.
//! - [`run`]: one controller under one workload.
//!
//! Linux only. Never here: scenarios and results (`leeward-lab`), sockets (`leeward-rpc`, `leeward-load`).

#![forbid(unsafe_code)]

pub mod endpoints;
pub mod error;
mod identity;
pub mod leaves;
mod locks;
pub mod machine;
pub mod measured;
pub mod placement;
pub mod plant;
pub mod run;
pub mod simulated;
mod stalls;
pub mod threads;
pub mod tier;

pub use endpoints::EndpointCosts;
pub use error::RealError;
pub use identity::machine_identity;
pub use leaves::{LocalLeaves, LocalMidTier};
pub use leeward_rpc::client::Transport;
pub use leeward_services::backend::InProcessService;
pub use machine::Machine;
pub use measured::MeasuredPlant;
pub use placement::Placement;
pub use plant::{BudgetRule, Plant, PlantError, PlantRun};
pub use run::{RunReport, RunSpec, ServerObservers, Snapshot};
pub use simulated::SimulatedPlant;
pub use threads::MeasuredThreadCosts;
pub use tier::RealTier;
