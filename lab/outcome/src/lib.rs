//! Outcomes of runs, in one family of types for the simulator, the load generator, the plants, the lab and the report.
//!
//! - [`counts`]: how requests ended, as clients and as a server count them.
//! - [`distribution`]: latencies, while they are recorded and as [`Percentiles`].
//! - [`run`]: [`RunOutcome`], what one run came to on whichever plant.
//! - [`columns`]: the declaration of a table's fields: type, text, heading and quantity in one place.
//! - [`results`]: the tables of a scenario's results and [`Results`], the whole; [`table`] reads them by field name.
//! - [`verdicts`]: the papers' claims over all scenarios; [`sensitivity`]: the same in worlds that differ.
//!
//! Plain data without I/O. Never here: how anything is run, and how results are drawn or printed.

#![forbid(unsafe_code)]

pub mod columns;
pub mod counts;
pub mod distribution;
pub mod results;
pub mod run;
pub mod sensitivity;
pub mod table;
pub mod verdicts;

pub use counts::{RequestCounts, ServerCounts};
pub use distribution::{Distribution, Percentiles};
pub use results::Results;
pub use run::{
    ClientWindow, CoreUsage, FineWindow, GraphOutcome, KindOutcome, LockOutcome, RunOutcome, SecondCallOutcome,
    ServerState, ServiceOutcome, ThreadOutcome, WindowOutcome,
};
