//! TLS over real sockets: who gets in, who is refused in which words, and what stalls nobody.

#![cfg(not(loom))]

mod certificates;
mod cuts;
mod peers;
mod refusals;
mod round_trip;
mod stalls;
