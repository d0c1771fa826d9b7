//! A host of controllers: what runs a controller's two halves around a service, whatever brings the requests.
//!
//! - [`Pulse`]: the slow half, ticked once per period by the core that notices first. [`Ticks`]: the period itself.
//! - [`Desk`]: what a connection asks of the core that looks after it: time, chance, the fast half, room for words.
//! - [`Choices`]: the random numbers of a core. [`Counters`], [`RequestCounts`]: what became of the requests.
//! - [`Recording`]: the file of what a controller was asked and decided. [`with_watch`]: a controller that a watch looks at. [`Rehearsal`]: one
//!   whose refusals happen to a share of the clients, or to none.
//!
//! Never here: sockets, protocols, threads that execute requests.

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
pub use counters::{Counters, RequestCounts, add};
pub use fast_rng::FastRng;
/// Answers as the counters tell them apart.
pub use leeward_observe::Answer;
pub use recording::{Recording, RecordingSummary};
pub use shadow::ShadowMode;
pub use ticker::Ticker;
pub use watch::{ControllerBounds, with_watch};
