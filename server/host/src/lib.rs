//! A host of controllers: what runs a controller's two halves around a service, whatever brings the requests.
//!
//! - [`Pulse`]: the slow half, ticked once per period by the core that notices first. [`Ticks`]: the period itself.
//! - [`Desk`]: what a connection asks of the core that looks after it: time, chance, the fast half, room for words.
//! - [`Choices`]: the random numbers of a core. [`Counters`], [`Counts`]: what became of the requests.
//! - [`Recording`]: the file of what a controller was asked and decided. [`watched`]: a controller that a watch looks at. [`Rehearsal`]: one
//!   whose refusals happen to a share of the clients, or to none.
//!
//! Never here: sockets, protocols, threads that execute requests.

#![forbid(unsafe_code)]

mod choices;
mod counters;
mod desk;
mod pulse;
mod recording;
mod rehearsal;
pub mod sync;
mod ticks;
mod watched;

pub use choices::Choices;
pub use counters::{Counters, Counts, add};
pub use desk::Desk;
/// Answers as the counters tell them apart.
pub use leeward_observe::Answer;
pub use pulse::{Load, Pulse};
pub use recording::{Recorded, Recording};
pub use rehearsal::Rehearsal;
pub use ticks::Ticks;
pub use watched::{Bounds, watched};
