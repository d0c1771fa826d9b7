//! A deterministic discrete-event simulator of a microsecond-scale server, its network and its clients: the plant in
//! which the controllers of `leeward-control` run at the papers' scale. One run is single-threaded and a pure function
//! of its [`SimConfig`]: the same bytes on any machine.
//!
//! No algorithm lives here; what a core, a queue, a wire and a client *are* lives here.

#![forbid(unsafe_code)]

pub mod config;
pub mod report;
pub mod service;
