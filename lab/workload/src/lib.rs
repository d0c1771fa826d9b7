//! Requests of clients: their times, clients, kinds and service times, drawn from a seed.
//!
//! For simulators and load generators. Entry points: [`Workload`], [`ArrivalStream`] and
//! [`ServiceTime`].
//!
//! They are the same for every controller and plant: the simulator and the load generator both use
//! this crate.
//!
//! - [`application`]: paths of requests through the server, and the locks on them.
//! - [`demand`]: the description, as plain data.
//! - [`arrivals`]: when requests are issued, and by which client (open loop).
//! - [`think_times`]: the same for a closed loop.
//! - [`service_time`]: distributions of service times.
//! - [`kinds`]: tenant, importance, deadline and cost of requests.
//! - [`alias`]: weighted draws.
//! - [`rng`]: random numbers, one stream per purpose.
//!
//! # Example
//! ```
//! use leeward_core::units::{Nanos, Rate};
//! use leeward_workload::{ArrivalStream, Arrivals, Segment, ServiceTime, Shares, Workload};
//!
//! let workload = Workload {
//!     clients: 1_000,
//!     arrivals: Arrivals::Poisson,
//!     shares: Shares::Equal,
//!     demand: vec![Segment { from: Nanos::ZERO, rate: Rate(1e6) }],
//!     service: ServiceTime::parse("exp:10us")?,
//! };
//! // The same seed draws the same requests, whatever serves them.
//! let drawn = |seed| ArrivalStream::new(&workload, seed).take(100).collect::<Vec<_>>();
//! assert_eq!(drawn(1), drawn(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain the handling of requests.

#![forbid(unsafe_code)]

pub mod alias;
pub mod application;
pub mod arrivals;
pub mod demand;
pub mod kinds;
pub mod rng;
pub mod service_time;
pub mod think_times;

pub use application::{Application, Path, Step};
pub use arrivals::ArrivalStream;
pub use demand::{Arrivals, Segment, Shares, Workload};
pub use kinds::{KindStream, RequestKind, RequestKinds};
pub use service_time::ServiceTime;
pub use think_times::ThinkTimes;
