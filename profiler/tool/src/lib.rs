//! The reading half of the profiler: traces (`docs/trace-format.md`) into statistics, requests, timelines across threads,
//! what the slowest requests do that the others don't, and exports. It records nothing and runs nothing: the compiler
//! pass and the run-time do that, and the program `leeward` starts them.
//!
//! Everything streams: memory is bounded whatever a trace's size, and a damaged trace gives what can be read of it.
//!
//! ```
//! use leeward_profile::format::write::{Setup, TraceWriter};
//! use leeward_profile::format::What;
//! use leeward_profile::trace::{Trace, ignore};
//! let folder = tempfile::tempdir()?;
//! let mut writer = TraceWriter::create(folder.path(), &Setup::default())?;
//! writer.event(0, 5_000, What::RequestEnd { id: 7 })?;
//! writer.finish(9_000)?;
//! let trace = Trace::open(folder.path(), &mut ignore)?;
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
mod recursion;
pub mod render;
pub mod span;
pub mod stats;
pub mod symbols;
pub mod trace;
