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
//! use std::path::Path;
//! use std::sync::atomic::AtomicBool;
//!
//! let text = r#"
//! id = "small"
//! title = "One core at twice its capacity"
//! source = "ours"
//! description = "An example."
//! server = { cores = 1 }
//! network = { rtt = "20us" }
//! workload = { service = "exp:10us", clients = 100, demand = ["2x"] }
//! run = { warmup = "20ms", duration = "50ms", seeds = 1 }
//! controller = [{ name = "none" }, { name = "auto" }]
//! "#;
//! let registry = registry();
//! let scenario = Scenario::parse("small.toml", text, Path::new(""), &[], false, &registry)?;
//! let stop = AtomicBool::new(false);
//! let results = run(&scenario, &registry, &Options::default(), &|_| {}, &stop)?;
//! let goodput: Vec<f64> = results.points.iter().map(|point| point.goodput_rps).collect();
//! assert!(goodput[1] > goodput[0]);
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
