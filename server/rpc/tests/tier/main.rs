//! Tiers over real sockets: every threading model gives the same answers, models change under load, leaves come and go.
//!
//! - `fan`: the service and its leaves. `asking`: clients that send ahead and account for every answer.

mod asking;
mod credits;
mod fan;
mod fanout;
mod faults;
mod frail;
mod governed;
mod hedging;
mod hostile;
mod models;
mod switching;
