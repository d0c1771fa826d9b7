//! Requests: uprobes and system calls, filtered in the kernel by BPF.
//!
//! Each request is timed exactly, in the kernel. It is counted there by its latency; only the
//! slowest and some of the others are reported, so that a server of 100,000 requests a second pays
//! for counting alone.
//!
//! | module | |
//! |---|---|
//! | [`bpf`] | assembler, maps and probes |
//! | `report` | the part of all programs: count, choose, report |
//! | `sockets` | requests by input and output |
//! | `functions`, `calls`, `symbols`, `returns` | requests that are calls of a function |
//! | `targets` | the recorded processes |
//! | `traps` | what a uprobe costs |
//! | `latencies` | the choice of the requests that are reported |
//! | `source` | [`RequestSource`] |
//!
//! Contains no stacks and no samples.

pub mod bpf;
mod calls;
mod delay;
mod functions;
mod latencies;
mod report;
mod returns;
mod sockets;
mod source;
mod symbols;
pub(crate) mod targets;
mod traps;

pub use latencies::Latencies;
pub use source::{RequestOptions, RequestSource};
