//! Records to a trace.
//!
//! | module | |
//! |---|---|
//! | [`calls`] | calls of a thread from its stacks |
//! | [`functions`] | where functions begin, by ELF files |
//! | [`modules`] | modules of the trace, and the functions at addresses |
//! | [`converter`] | a trace of a process, and of children with the same code |
//! | [`keep`] | slow requests alone, from a ring in memory |
//! | `hidden` | copies of files that are not at their paths |
//! | [`jit_map`] | names of code that was compiled meanwhile |
//! | `members` | which processes are recorded, and in which trace |
//! | [`recorder`] | sources, and the traces of their processes |
//!
//! Contains no sources of records, and no analysis of traces.

pub mod calls;
mod config;
pub mod converter;
pub mod functions;
mod hidden;
mod item;
pub mod jit_map;
pub mod keep;
mod kept;
mod labels;
mod members;
pub mod modules;
mod order;
pub mod recorder;
mod thread;

pub use config::{ConverterConfig, Written};
pub use converter::Converter;
pub use keep::{KeepSlow, SlowRequests};
pub use recorder::Recorder;
