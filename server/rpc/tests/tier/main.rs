//! Tiers over real sockets: every threading model gives the same answers, models change under load, leaves come and go.
//!
//! - `fan`: the service and its leaves. `asking`: clients that send ahead and account for every answer.

mod credits;
mod fanout;
mod fanout_service;
mod faults;
mod faulty_leaf;
mod governed;
mod hedging;
mod hostile;
mod models;
mod pipelined_client;
mod switching;
