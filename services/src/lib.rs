//! Services on Leeward's server: to measure it, and to show how one is written. Never here: admission, sockets.

#![forbid(unsafe_code)]

pub mod echo;
pub mod synthetic;
