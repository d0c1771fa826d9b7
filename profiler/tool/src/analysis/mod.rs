//! Interpretation of events: activities of threads, holders of locks, requests and causes of slow
//! ones.
//!
//! All of it processes events in the order of time, with bounded memory.

pub mod activity;
pub mod breakdown;
pub(crate) mod clock_gaps;
pub mod culprit;
mod findings;
pub mod follow;
mod helpers;
pub mod idle;
mod idle_stacks;
mod inclusive;
mod locks;
pub mod missing;
pub mod names;
pub mod requests;
mod responsible;
pub mod select;
pub mod slowest;
mod starved;
pub mod suggest;
pub mod sums;
pub mod tail;
pub(crate) mod thread_history;
pub mod timeline;
pub mod weights;
pub mod workers;

pub use activity::{Activity, Interval};
pub use breakdown::{Breakdown, Cause};
pub use requests::Request;
pub use select::Selection;
pub use sums::Sums;
