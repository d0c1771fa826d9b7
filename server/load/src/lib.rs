//! An honest load generator for services that speak Leeward's protocol.
//!
//! For measurements of services that speak Leeward's protocol. Entry points: [`Plan`],
//! [`LoadConfig`] and [`run`].
//!
//! - Open loop: the due times of all requests are drawn before the run, from the simulator's random
//!   streams ([`schedule`]), or read from a trace ([`trace`]). A late request is still sent, and
//!   counted as late.
//! - Latency counts from the *intended* time. A delay by the server, the network or this generator
//!   shows in every delayed request, including unsent ones (no coordinated omission). Latency from
//!   the actual sending is recorded beside it.
//! - Every request has exactly one end in the [`report`], and the sums are checked.
//! - [`driver`]: one thread, thousands of connections, the client shell and algorithms of
//!   `leeward-core`. A closed loop measures capacity.
//! - [`recorder`] counts, [`output`] writes `.hgrm` and JSON.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use leeward_core::registry::Environment;
//! use leeward_core::units::{Nanos, Rate};
//! use leeward_load::{LoadConfig, Plan, Schedule, run};
//! use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
//!
//! let workload = Workload {
//!     clients: 100,
//!     arrivals: Arrivals::Poisson,
//!     shares: Shares::Equal,
//!     demand: vec![Segment { from: Nanos::ZERO, rate: Rate(50_000.0) }],
//!     service: ServiceTime::Exponential(Nanos::from_micros(10)),
//! };
//! let plan = Plan::Open(Schedule::draw(&workload, 1, Nanos::from_secs(10))?);
//!
//! // The client half of the server's algorithm.
//! let slo = Nanos::from_micros(200);
//! let registry = leeward_controllers::builtin();
//! let algorithm = registry.find("breakwater")?;
//! let params = algorithm.params(&[])?;
//! let environment = Environment::new(4, Nanos::from_micros(10), slo);
//! let client = || (algorithm.build_client)(&params, &environment);
//!
//! let config = LoadConfig::new("127.0.0.1:7117".parse()?, slo);
//! let config = LoadConfig { warmup: Nanos::from_secs(1), ..config };
//! let results = run(&config, &plan, client, &AtomicBool::new(false), |_| {})?;
//! println!("{} good responses per second", results.report.goodput_per_s);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Linux only. Contains no server and no decision of an algorithm.

#![forbid(unsafe_code)]

pub mod config;
pub mod driver;
mod link;
mod max_wait;
pub mod output;
mod poller;
pub mod recorder;
pub mod report;
pub mod schedule;
mod socket;
mod system;
pub mod trace;

pub use config::{AnswerCheck, LoadConfig, LoadError, Plan, Polling};
pub use driver::{Progress, ScaledRun, run, run_scaled};
pub use leeward_rpc::address;
pub use leeward_rpc::client::Transport;
pub use leeward_rpc::wire::ServerProtocol;
pub use recorder::{Recorder, RecorderConfig, RunEnd, RunResults};
pub use report::LoadReport;
pub use schedule::{PlannedRequest, Schedule};
pub use system::{PinGuard, allow_sockets, may_run_on};
