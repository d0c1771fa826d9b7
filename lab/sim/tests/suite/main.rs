//! Tests of the simulator's public interface, in one program: cargo runs programs one after the
//! other, and the tests of one program in parallel.
//!
//! `memory.rs` is separate because it measures the whole process.

mod blocking_waits;
mod clients;
mod closed;
mod common;
mod control_ticks;
mod cores;
mod determinism;
mod graphs;
mod idle;
mod kinds;
mod lockin;
mod lockout;
mod locks;
mod narrow;
mod oracle;
mod recovery;
mod replay;
mod replicas;
mod second_calls;
mod settling;
mod shadow;
mod signals;
mod snapshots;
mod sockets;
mod stopping;
mod swarm;
mod switching;
mod theory;
mod threads;
