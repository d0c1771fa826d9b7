//! The controller benchmark: every controller in every case, with its defaults, beside tuned
//! variants and the oracle.
//!
//! - `cases`: the repository's scenarios as cases: one workload, one machine, one lock policy.
//! - `random`: cases drawn from a seed.
//! - `case_result`: the runs of a case, and each controller's result.
//! - `ranking`: results over all cases.
//! - `markdown`: the page.

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
