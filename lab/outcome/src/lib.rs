//! Outcomes of runs: one family of types for the simulator, the load generator, the plants, the lab
//! and the report.
//!
//! For programs that read or write results. Entry points: [`RunOutcome`], [`Results`] and
//! [`Distribution`].
//!
//! - [`counts`]: ends of requests, as clients and servers count them.
//! - [`distribution`]: latencies, as a histogram and as [`Percentiles`].
//! - [`run`]: [`RunOutcome`], the outcome of one run on any plant.
//! - [`columns`]: declaration of a table's fields: type, text, heading and quantity in one place.
//! - [`results`]: the tables of a scenario's results, together [`Results`]; [`table`] reads them by
//!   field name.
//! - [`verdicts`]: the papers' claims over all scenarios; [`sensitivity`]: the same under
//!   perturbations.
//!
//! # Example
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_outcome::Distribution;
//!
//! let mut latencies = Distribution::new();
//! for micros in 1..=100 {
//!     latencies.record(Nanos::from_micros(micros));
//! }
//! let percentiles = latencies.percentiles();
//! assert!(percentiles.p50 < percentiles.p99);
//! ```
//!
//! Plain data without I/O. Does not contain runs, drawing or printing.

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
    ServerState, ServiceOutcome, SettlingOutcome, ThreadOutcome, WindowOutcome,
};
