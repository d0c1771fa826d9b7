//! Tests of one core in virtual time: virtual sockets, a protocol of single letters, and a clock
//! that only work advances. No network.

mod bounds;
mod fairness;
mod handshakes;
mod support;
