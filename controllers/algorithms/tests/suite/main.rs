//! The controllers from outside, in one program: cargo runs programs one after the other, and the
//! tests of one program in parallel. `allocations.rs` is separate, because its allocator counts for
//! the whole program.

#![cfg(not(loom))]

mod authors;
mod edge;
mod greedy;
mod invariants;
mod plug_in;
mod published;
mod quantities;
mod support;
mod untried;
