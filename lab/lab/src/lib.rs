//! Experiments as data: scenario files, their runs and results, and verdicts on the papers' claims.
//!
//! For programs that run scenarios and read results without a terminal. Entry points:
//! [`Scenario`], [`run::run`] and [`Results`].
//!
//! - [`scenario`]: the strict TOML format; [`Scenario`] is a validated file.
//! - [`run`]: all runs of a scenario, in parallel, with results that don't depend on the number of
//!   threads.
//! - [`claims`]: the language for a scenario's claims.
//! - [`results`]: the schema of the results, from `leeward-outcome`; [`store`] writes them to a
//!   folder and reads them back.
//! - [`training`]: curves of threading setups from measurements, and advice from curves.
//! - [`benchmark`]: every controller in every case.
//! - [`sweep`]: a scenario over a grid of values.
//! - [`verdicts`]: the claims of many scenarios, judged as published and with our additions.
//! - [`tune`]: the search for the best parameters of a controller in a scenario.
//!
//! # Example
//! ```
//! use leeward_lab::run::{Options, run};
//! use leeward_lab::{Scenario, registry};
//! use std::sync::atomic::AtomicBool;
//!
//! // One core at half its capacity and at twice as much, without control and with two controllers.
//! let seeds = ["run.seeds=1".to_string()];
//! let scenario = Scenario::builtin("demo", &seeds, true)?;
//! let stop = AtomicBool::new(false);
//! let results = run(&scenario, &registry(), &Options::default(), &|_| {}, &stop)?;
//! assert!(!results.points.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain a command line or HTML.

#![forbid(unsafe_code)]

mod assemble;
pub mod benchmark;
pub mod claims;
mod error;
mod execute;
mod numbers;
mod options;
pub mod plan;
mod policy_curves;
pub mod prediction;
pub mod real;
mod rows;
pub mod run;
pub mod scenario;
mod shifts;
pub mod store;
pub mod sweep;
pub mod training;
pub mod tune;
pub mod verdicts;

pub use leeward_outcome::results::{self, Results};
pub use leeward_sim::oracle::registry;
pub use scenario::builtin::{BuiltinScenario, builtin_scenarios};
pub use scenario::{Scenario, ScenarioError};
