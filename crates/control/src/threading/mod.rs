//! Threading models as pure code (µTune, OSDI'18): which threads of a server receive, execute and ask leaves, and which of these setups
//! fits the load. Like the controllers it has no clocks, threads or sockets: the simulator and the real server call the same code.
//!
//! Never here: threads, queues, parking and how a switch is carried out. That is the plant's.
//!
//! - [`Setup`]: a model with the sizes of its pools, written as in the paper (`SDB1-50`); [`Threading`] adds `CORE<n>`.
//! - [`slots`]: what the threads of a setup do, as a list of [`Duty`].

mod duty;
mod parse;
mod setup;

pub use duty::{Duty, Owed, Roles, slots};
pub use parse::{Fault, SetupError};
pub use setup::{Fanout, Handling, POOL_MAX, SPIN_MAX, SPIN_MIN, Setup, Threading, Wait};
