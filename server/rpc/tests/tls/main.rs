//! TLS over real sockets: accepted clients, rejections with their messages, and stalled handshakes.

#![cfg(not(loom))]

mod certificates;
mod cuts;
mod peers;
mod refusals;
mod round_trip;
mod stalls;
