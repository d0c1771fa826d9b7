//! Tests of traces and their analysis, in one program.
//!
//! `memory.rs` is a separate program, because its allocator counts for the whole program.

mod culprits;
mod damaged;
mod exports;
mod fuzz;
mod golden;
mod joined;
mod missing;
mod parquet;
mod planted;
#[path = "../../examples/support/store.rs"]
mod store;
mod support;
mod threads;
