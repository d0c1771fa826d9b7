//! The reading half of the profiler: converts traces (`docs/trace-format.md`) to statistics,
//! requests, timelines across threads, comparisons of the slowest requests with the others, traces
//! of several processes, and exports.
//!
//! For programs that read traces, as `leeward profile` does. Entry point:
//! [`trace::Trace::open`].
//!
//! It records nothing and runs nothing: the compiler pass and the run-time record, and the program
//! `leeward` starts them.
//!
//! Everything is streamed: memory is bounded for any size of a trace, and the readable parts of a
//! damaged trace are used.
//!
//! ```
//! use leeward_profile::format::EventKind;
//! use leeward_profile::format::write::{TraceConfig, TraceWriter};
//! use leeward_profile::trace::{Trace, ignore_progress};
//! let folder = tempfile::tempdir()?;
//! let mut writer = TraceWriter::create(folder.path(), &TraceConfig::default())?;
//! writer.event(0, 5_000, EventKind::RequestEnd { id: 7 })?;
//! writer.finish(9_000)?;
//! let trace = Trace::open(folder.path(), &mut ignore_progress)?;
//! assert_eq!(trace.counts().events, 1);
//! assert!(trace.damage().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod analysis;
pub mod export;
pub mod format;
pub mod hash;
pub mod histogram;
pub mod join;
mod recursion;
pub mod render;
pub mod span;
pub mod stats;
pub mod symbols;
pub mod trace;
