//! The plants: each runs a scenario once and reports the outcome in the same terms ([`Plant`]).
//!
//! For programs that make one run, simulated or on this machine. Entry points:
//! [`SimulatedPlant`] and [`MeasuredPlant`].
//!
//! - [`plant`]: the trait, its input and its errors.
//! - [`simulated`]: the simulator.
//! - [`measured`]: this machine, a server on some CPUs and its clients on another, over loopback
//!   TCP.
//!
//! The other modules are parts of the measured plant:
//!
//! - [`placement`]: CPUs of the two ends.
//! - [`machine`]: measurements of this machine: capacity, round trip, message costs, stalls.
//! - [`threads`]: costs of its threads: wake-ups, switches, polls.
//! - [`endpoints`]: time that a tier's clients and leaves add.
//! - [`tier`]: a tier of the simulator's model, served here with its leaves.
//! - [`leaves`]: a service with leaves, each server on its part of the CPUs.
//! - [`run`]: one controller under one workload.
//!
//! # Example
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_plant::{BudgetRule, Plant, PlantRun, SimulatedPlant};
//! use leeward_sim::{SimConfig, service_time::ServiceTime};
//! use std::sync::atomic::AtomicBool;
//!
//! let algorithm = leeward_controllers::builtin().find("breakwater")?.clone();
//! // The papers' testbed at 1.4 times its capacity, for 50 ms.
//! let service = ServiceTime::Exponential(Nanos::from_micros(10));
//! let (warmup, duration) = (Nanos::from_millis(20), Nanos::from_millis(50));
//! let config = SimConfig { warmup, duration, ..SimConfig::testbed(service, 1.4) };
//! let budget = BudgetRule::Configured;
//! let run = PlantRun { algorithm: &algorithm, params: &[], config: &config, budget };
//! let outcome = SimulatedPlant.run(&run, &AtomicBool::new(false), &mut |_| {})?;
//! assert!(outcome.violations.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Linux only. Does not contain scenarios and results (`leeward-lab`) or sockets (`leeward-rpc`,
//! `leeward-load`).

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
pub use machine::{Machine, Stalls};
pub use measured::MeasuredPlant;
pub use placement::Placement;
pub use plant::{BudgetRule, Plant, PlantError, PlantRun};
pub use run::{RunReport, RunSpec, ServerObservers, Snapshot};
pub use simulated::SimulatedPlant;
pub use threads::MeasuredThreadCosts;
pub use tier::RealTier;
