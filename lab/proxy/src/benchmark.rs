//! The best static number of a case, and limits relative to it.

use crate::case::Case;
use crate::proxy::{RunResult, run};
use leeward_concurrency::fixed::Static;
use leeward_concurrency::registry::LimitPolicy;
use leeward_concurrency::LimitEnvironment;
use leeward_core::params::Params;

/// Static numbers of the search.
pub const NUMBERS: [u32; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// A larger number must have this much more goodput to be better.
const BETTER: f64 = 1.005;

/// Result of the best static number.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BestStatic {
    /// The number.
    pub number: u32,
    /// Its result.
    pub result: RunResult,
}

/// Searches the best static number of a case.
pub fn best_static(case: &Case, seed: u64) -> BestStatic {
    let mut best = BestStatic { number: 1, result: RunResult::default() };
    for number in NUMBERS {
        let result = run(case, &mut Static(number), seed);
        if result.good as f64 > best.result.good as f64 * BETTER {
            best = BestStatic { number, result };
        }
    }
    best
}

/// Plays a case with a limit at its defaults.
pub fn play(case: &Case, policy: &LimitPolicy, seed: u64) -> RunResult {
    let environment = LimitEnvironment { objective: case.objective, seed };
    run(case, policy.build(&Params::default(), &environment).as_mut(), seed)
}
