//! The gate in front of a service: one controller, whatever brings the requests and whatever runs them.
//!
//! - [`Gate`], [`Builder`]: the controller's halves behind a few locks. [`Gate::arrive`] decides on a request.
//! - [`Ticket`]: an admitted request. It ends exactly once, and by being dropped if nothing else ends it.
//! - [`Seat`]: its place in the gate's wait room, where there is one ([`Builder::room`]), until it is its turn.
//! - [`Arriving`]: knowledge about a request. [`Probe`]: the delay of a worker where requests have no age of their own.
//! - [`Decision`]: why a request was refused, kept in a ring of fixed size and asked for by number.
//! - [`Counts`]: what became of the requests. The gate as a [`Source`]: the same for metrics and for a dashboard.
//!
//! Never here: sockets, protocols, executors, threads.
//!
//! ```
//! use leeward_gate::{Arriving, Gate, Outcome};
//! use std::time::Duration;
//!
//! let gate = Gate::builder(Duration::from_millis(20)).workers(2).build()?;
//! let ticket = gate.arrive(&Arriving::default().with_waited(Duration::from_millis(1))).expect("nothing waits");
//! assert_eq!(gate.counts().in_flight(), 1);
//! ticket.finish(Outcome::Completed);
//! let refusal = gate.arrive(&Arriving::default().with_waited(Duration::from_millis(30))).unwrap_err();
//! println!("{}", gate.why(refusal.decision).expect("just made"));
//! assert_eq!(gate.counts().in_flight(), 0);
//! # Ok::<(), leeward_gate::BuildError>(())
//! ```

#![forbid(unsafe_code)]

mod builder;
mod counts;
mod delay;
mod delay_weight;
mod downstream;
mod gate;
mod handler_time;
mod load;
mod max_age;
mod outcome;
mod permit;
mod probe;
mod queue;
mod request;
mod shard;
mod source;

pub use builder::{BuildError, Builder, Mode};
pub use counts::GateCounts;
pub use gate::{Gate, NAME_MAX, Rejection};
pub use leeward_core::units::Tenant;
pub use leeward_observe::{Decision, DecisionId, DecisionReason, Source};
pub use load::Load;
pub use outcome::Outcome;
pub use permit::Permit;
pub use probe::Probe;
pub use queue::{WaitError, Waiter};
pub use request::{Class, RequestInfo};
