//! An honest load generator for services that speak Leeward's protocol.
//!
//! - Open loop: when each request is due is drawn before the run ([`schedule`]), from the same random streams as the
//!   simulator's, or read from a trace ([`trace`]). A request that is sent late is still sent, and counted as late.
//! - Latency counts from the *intended* time. What the server, the network or this generator delays shows in every
//!   request that it delays, also in those that were not sent yet (no coordinated omission). Latency from the actual
//!   sending is recorded beside it.
//! - Every request has exactly one end in the [`report`], and the sums are checked.
//! - [`driver`]: one thread, thousands of connections, the client shell and algorithms of `leeward-core`. There is a
//!   closed loop too, to measure capacity.
//! - [`recorder`] counts, [`output`] writes `.hgrm` and JSON.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use leeward_core::registry::Environment;
//! use leeward_core::units::{Nanos, Rate};
//! use leeward_load::{LoadConfig, Plan, Schedule, run};
//! use leeward_workload::{Arrivals, Segment, Service, Shares, Workload};
//!
//! let workload = Workload {
//!     clients: 100,
//!     arrivals: Arrivals::Poisson,
//!     shares: Shares::Equal,
//!     demand: vec![Segment { from: Nanos::ZERO, rate: Rate(50_000.0) }],
//!     service: Service::Exponential(Nanos::from_micros(10)),
//! };
//! let plan = Plan::Open(Schedule::draw(&workload, 1, Nanos::from_secs(10))?);
//!
//! // The client side of the algorithm that the server runs.
//! let slo = Nanos::from_micros(200);
//! let registry = leeward_controllers::builtin();
//! let algorithm = registry.find("breakwater")?;
//! let params = algorithm.params(&[])?;
//! let environment = Environment::new(4, Nanos::from_micros(10), slo);
//! let client = || (algorithm.build_client)(&params, &environment);
//!
//! let config = LoadConfig { warmup: Nanos::from_secs(1), ..LoadConfig::new("127.0.0.1:7117".parse()?, slo) };
//! let recording = run(&config, &plan, client, &AtomicBool::new(false), |_| {})?;
//! println!("{} good responses per second", recording.report.goodput_per_s);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Linux only. Never here: what a server does, and any decision of an algorithm.

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
pub use recorder::RunResults;
pub use report::LoadReport;
pub use schedule::{PlannedRequest, Schedule};
pub use system::{allow_sockets, may_run_on};
