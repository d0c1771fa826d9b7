//! Tiers over real sockets: every threading model gives the same responses, models change under
//! load, leaves come and go.
//!
//! - `fanout_service`: the service and its leaves. `pipelined_client`: a client that sends ahead
//!   and accounts for every response.

mod credits;
mod fanout;
mod fanout_service;
mod faults;
mod faulty_leaf;
mod fixed_window_leaf;
mod governed;
mod hedging;
mod hostile;
mod models;
mod pipelined_client;
mod slow_leaf;
mod switching;
