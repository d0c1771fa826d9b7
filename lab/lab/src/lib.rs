//! Experiments as data: scenario files, the runs they ask for, their results, and the papers' claims held against them.
//!
//! - [`scenario`]: the strict TOML format; [`Scenario`] is what a checked file says.
//! - [`run`]: all runs of a scenario, in parallel, with results that don't depend on the number of threads.
//! - [`claims`]: the little language in which a scenario writes what a paper claims.
//! - [`results`]: the schema of what comes out, of `leeward-outcome`; [`store`] writes it to a folder and reads it back.
//! - [`training`]: curves of threading setups from measurements, and advice from curves.
//! - [`league`]: every controller in every scene.
//! - [`sweep`]: a scenario over a grid of values.
//! - [`verdicts`]: the claims of many scenarios, judged as published and with our additions.
//! - [`tune`]: the search for the parameters that serve a scenario best.
//!
//! No command line and no HTML live here.

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
