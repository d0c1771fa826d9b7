//! The gate in front of a service: one controller, independent of protocol and executor.
//!
//! For services and proxies with a protocol or an executor of their own; `leeward-tower` is the
//! layer for axum, hyper and tonic. Entry points: [`Gate::builder`] and [`Gate::admit`].
//!
//! - [`Gate`], [`Builder`]: the controller's halves behind a few locks. [`Gate::admit`] decides
//!   about a request.
//! - [`Permit`]: an admitted request. It ends exactly once; dropping it ends it, too.
//! - [`Waiter`]: a request's position in the gate's wait queue, if there is one
//!   ([`Builder::queue`]).
//! - [`RequestInfo`]: a front end's knowledge of a request. [`ProbeId`]: an executor's delay where
//!   requests have no age.
//! - [`Decision`]: the reason for a rejection, kept in a ring of fixed size and read by number.
//! - [`GateCounts`]: outcomes of the requests; [`ClassCounts`], [`RouteCounts`]: the same by class
//!   and route. As a [`Source`], the gate reports the same to
//!   metrics and dashboards.
//!
//! Does not contain sockets, protocols, executors or threads.
//!
//! ```
//! use leeward_gate::{Gate, Outcome, RequestInfo};
//! use std::time::Duration;
//!
//! let gate = Gate::builder(Duration::from_millis(20)).workers(2).build()?;
//! let permit =
//! gate.admit(&RequestInfo::default().with_age(Duration::from_millis(1))).expect("admitted");
//! assert_eq!(gate.counts().in_flight(), 1);
//! permit.finish(Outcome::Completed);
//! let rejection =
//! gate.admit(&RequestInfo::default().with_age(Duration::from_millis(30))).unwrap_err();
//! println!("{}", gate.explain(rejection.decision).expect("just made"));
//! assert_eq!(gate.counts().in_flight(), 0);
//! # Ok::<(), leeward_gate::BuildError>(())
//! ```

#![forbid(unsafe_code)]

mod builder;
mod caller_queue;
mod counts;
mod delay;
mod delay_weight;
mod downstream;
mod estimates;
mod gate;
mod handler_time;
mod load;
mod max_age;
mod open_request;
mod outcome;
mod permit;
mod probe;
mod queue;
mod request;
mod shard;
mod source;

pub use builder::{BuildError, Builder, Mode, WORKERS_MAX};
pub use counts::{AnswerCounts, ClassCounts, GateCounts, RouteCounts};
pub use gate::{Gate, NAME_MAX, Rejection};
pub use leeward_core::units::Tenant;
pub use leeward_observe::{Decision, DecisionId, DecisionReason, Source};
pub use load::Load;
pub use outcome::Outcome;
pub use permit::Permit;
pub use probe::ProbeId;
pub use queue::{WaitError, Waiter};
pub use request::{Class, RequestInfo};
