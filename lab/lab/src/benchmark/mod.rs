//! The league: every controller in every scene, with its defaults, beside those that were tuned for the scene and the oracle.
//!
//! - [`scenes`]: the repository's scenarios as scenes: one workload, one machine, one way to take locks.
//! - [`random`]: scenes drawn from a seed.
//! - [`play`]: a scene's runs, and what each controller reached in it.
//! - [`standings`]: what they reached over all scenes.
//! - [`markdown`]: the table.

mod case_result;
mod cases;
mod markdown;
mod random;
mod ranking;

pub use case_result::{CaseResult, ControllerResult, run_case};
pub use cases::{BenchmarkCase, builtin_cases};
pub use markdown::markdown;
pub use random::{random_case, random_scenario_text};
pub use ranking::{Ranking, rankings};
