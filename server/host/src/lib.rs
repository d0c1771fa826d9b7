//! A host of controllers: runs a controller's two halves around a service, with any source of
//! requests.
//!
//! For engines and gates. Entry points: [`ControlTicker`], [`Recording`] and [`ShadowMode`].
//!
//! - [`ControlTicker`]: the slow half, which the core that notices first ticks once per period.
//!   [`Ticker`]: the period itself.
//! - [`ConnectionContext`]: a connection's access to its core: time, random numbers, the fast half,
//!   output.
//! - [`FastRng`]: the random numbers of a core. [`Counters`], [`RequestCounts`]: counts of requests
//!   by outcome.
//! - [`Recording`]: the file of a controller's calls and decisions. [`with_watch`]: a controller
//!   with an observer. [`ShadowMode`]: one whose rejections are enforced for a share of the
//!   clients, or for none.
//!
//! # Example
//! ```
//! use leeward_core::units::{Nanos, Time};
//! use leeward_host::Ticker;
//!
//! // The first thread that finds a tick due runs it; missed periods are reported, not repeated.
//! let ticker = Ticker::new(Nanos::from_micros(10), 0);
//! let now = Time::ZERO + Nanos::from_micros(35);
//! ticker.run(now, |ticks, _| *ticks += 1);
//! ticker.run(now, |ticks, _| *ticks += 1);
//! assert_eq!(ticker.with(|ticks| *ticks), 1);
//! assert!(ticker.due() > now);
//! ```
//!
//! Does not contain sockets, protocols, or threads that execute requests.

#![forbid(unsafe_code)]

mod connection_context;
mod control_ticker;
mod counters;
mod fast_rng;
mod recording;
mod shadow;
pub mod sync;
mod ticker;
mod watch;

pub use connection_context::ConnectionContext;
pub use control_ticker::{ControlTicker, RequestTotals};
pub use counters::{Counters, RequestCounts, add, reason_of};
pub use fast_rng::FastRng;
/// Classes of responses in the counters.
pub use leeward_observe::Answer;
pub use recording::{Recording, RecordingSummary};
pub use shadow::ShadowMode;
pub use ticker::Ticker;
pub use watch::{ControllerBounds, with_watch};
