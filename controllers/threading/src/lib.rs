//! Threading models as pure code (µTune, OSDI'18): the threads of a server that receive, execute
//! and call leaves, and the setup that fits the load. Like the controllers it has no clocks,
//! threads or sockets: the simulator and the real server call the same code.
//!
//! For tiers of servers, and for authors of policies. Entry points: [`registry`],
//! [`ThreadingPolicy`] and [`curves::Curves`].
//!
//! Does not contain threads, queues, parking or the execution of a switch. These are the plant's.
//!
//! - [`Setup`]: a model with the sizes of its pools, written as in the paper (`SDB1-50`);
//!   [`ThreadingSetup`] adds `CORE<n>`.
//! - [`roles`]: the tasks of a setup's threads, as a list of [`Role`].
//! - [`ArrivalRing`]: the fast half, written by each thread that receives; [`ArrivalWindow`] is a
//!   copy of it.
//! - [`ThreadingPolicy`]: the trait of a policy; [`ThreadSignals`] is its input. [`registry`] has
//!   the policies by name.
//! - [`curves`]: tail latency and CPU of every setup over the load, from training.
//!
//! ```
//! use leeward_threading::{ArrivalRing, ThreadEnvironment, ThreadSignals, curves::*, registry};
//! use leeward_core::units::{Rate, Time};
//! use std::sync::Arc;
//!
//! // SIP1 is quicker, SDB1-16 sustains more.
//! let point = |load: f64, us: f64| {
//!     let (cpu, samples, spread) = (1.0, 2_000, 0.02);
//!     CurvePoint { load, p50_us: us, p99_us: us, p999_us: us, cpu, samples, spread }
//! };
//! let curve = |setup: &str, us: f64, max_load: f64| {
//!     let points = vec![point(100.0, us), point(max_load, us)];
//!     Curve { setup: setup.parse().unwrap(), points, max_load }
//! };
//! let (sip, sdb) = (curve("SIP1", 100.0, 1_000.0), curve("SDB1-16", 150.0, 9_000.0));
//! let curves = Curves::new(vec![sip, sdb])?;
//!
//! let utune: registry::PolicyChoice = "utune".parse()?;
//! let environment = ThreadEnvironment::new(Some(Arc::new(curves)), "SIP1".parse()?, 2);
//! let mut policy = utune.policy.build(&utune.policy.params(&[])?, &environment)?;
//! assert_eq!(policy.initial().to_string(), "SIP1");
//!
//! // Five arrivals, 200 us apart: 5,000 per second.
//! let ring = ArrivalRing::new();
//! (1..=5).for_each(|n| _ = ring.record(Time(n * 200_000)));
//! let mut signals = ThreadSignals::idle(Time(1_000_000), policy.initial());
//! signals.arrivals = ring.window(policy.window());
//! assert_eq!(policy.decide(&signals).unwrap().to_string(), "SDB1-16");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod curves;
pub mod fixed;
pub mod ipi;
pub mod leeward;
pub mod oracle;
mod parse;
pub mod periodic;
mod policy;
mod preferred;
pub mod registry;
mod ring;
mod role;
pub mod rotate;
mod setup;
pub mod utune;
mod window;

pub use parse::SetupError;
pub use policy::{
    Build, LatencyWindow, PolicySpec, PollSchedule, SwitchReason, ThreadEnvironment, ThreadGauges, ThreadSignals,
    ThreadingPolicy,
};
pub use ring::ArrivalRing;
pub use role::{LeftoverWork, Role, Tasks, roles};
pub use setup::{Fanout, Handling, POOL_MAX, SPIN_MAX, SPIN_MIN, Setup, SetupFault, ThreadingSetup, Wait};
pub use window::{ArrivalWindow, WINDOW_MAX};
