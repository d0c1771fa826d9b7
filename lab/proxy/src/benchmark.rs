//! The benchmark of concurrency limits: the best static number of each case, and each limit's
//! goodput relative to it. Does not contain limits or cases.

use crate::case::Case;
use crate::proxy::{RunResult, run};
use leeward_concurrency::fixed::Static;
use leeward_concurrency::registry::{LimitPolicy, POLICIES};
use leeward_concurrency::{LimitEnvironment, fixed};
use leeward_core::params::Params;
use serde::{Deserialize, Serialize};

/// Static numbers of the search. The best one of the slowest awaiting backends is near 400.
pub const NUMBERS: [u32; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// A larger number must have this much more goodput to be better: less is noise.
const BETTER: f64 = 1.005;

/// Goodput is equal to the best static number's from this share on.
const EQUAL: f64 = 0.99;

/// Median latency that a limit with equal goodput may have, relative to the best static number's.
const SLOWER: f64 = 1.05;

/// Share of the answers that may be late: the 99th percentile is within the objective.
const LATE: f64 = 0.01;

/// Best static number of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestStatic {
    /// The number.
    pub number: u32,
    /// Its result.
    pub result: RunResult,
}

/// Result of one limit in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Name of the limit.
    pub limit: String,
    /// Its result.
    pub result: RunResult,
    /// Goodput relative to the best static number's.
    pub share: f64,
    /// Median latency relative to the best static number's.
    pub p50_ratio: f64,
    /// Share of the answers that were late.
    pub late_share: f64,
}

/// Results of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Number of the case, which is the seed that draws it.
    pub id: u64,
    /// Description of the case.
    pub case: String,
    /// The best static number.
    pub best: BestStatic,
    /// Results of the limits, in order of the registry.
    pub limits: Vec<LimitResult>,
}

/// A limit over all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Name of the limit.
    pub limit: String,
    /// Median of its goodput relative to the best static number's.
    pub median: f64,
    /// The same in the worst tenth of the cases.
    pub tenth: f64,
    /// The same in the worst case.
    pub worst: f64,
    /// Share of the cases below 0.9.
    pub below_nine_tenths: f64,
    /// Cases with equal goodput.
    pub equal: usize,
    /// Share of these in which the median latency is at most 1.05 times the best static number's.
    pub p50_within: f64,
    /// Median of the share of the answers that were late.
    pub late_median: f64,
    /// The same in the worst tenth of the cases.
    pub late_tenth: f64,
    /// Share of the cases with at most 1 % of the answers late.
    pub late_within: f64,
}

/// Limits of the benchmark: all but the static one.
pub fn policies() -> impl Iterator<Item = &'static LimitPolicy> {
    POLICIES.iter().filter(|policy| policy.name != fixed::POLICY.name)
}

/// Searches the best static number of a case. Every run meets the same requests.
pub fn best_static(case: &Case, seed: u64) -> BestStatic {
    let mut best = BestStatic { number: 1, result: RunResult::default() };
    for number in NUMBERS {
        let result = run(case, Box::new(Static(number)), seed);
        if result.good as f64 > best.result.good as f64 * BETTER {
            best = BestStatic { number, result };
        }
    }
    best
}

/// Plays a case with a limit at its defaults.
pub fn play(case: &Case, policy: &LimitPolicy, seed: u64) -> RunResult {
    let environment = LimitEnvironment { objective: case.objective, seed };
    run(case, policy.build(&Params::default(), &environment), seed)
}

/// Plays the case that `seed` draws with every limit.
pub fn play_all(seed: u64) -> CaseResult {
    let case = Case::random(seed);
    let best = best_static(&case, seed);
    let limits = policies().map(|policy| compare(policy.name, play(&case, policy, seed), &best)).collect();
    CaseResult { id: seed, case: case.to_string(), best, limits }
}

/// Relates a result to the best static number's.
pub fn compare(limit: &str, result: RunResult, best: &BestStatic) -> LimitResult {
    LimitResult {
        limit: limit.into(),
        result,
        share: result.good as f64 / best.result.good.max(1) as f64,
        p50_ratio: result.p50_ns as f64 / best.result.p50_ns.max(1) as f64,
        late_share: result.late_share(),
    }
}

/// Ranks the limits over cases, the best worst tenth first.
pub fn rankings(cases: &[CaseResult]) -> Vec<Ranking> {
    let mut table: Vec<Ranking> = policies().filter_map(|policy| ranking(policy.name, cases)).collect();
    table.sort_by(|a, b| b.tenth.total_cmp(&a.tenth));
    table
}

fn ranking(limit: &str, cases: &[CaseResult]) -> Option<Ranking> {
    let results = || cases.iter().flat_map(|case| &case.limits).filter(|result| result.limit == limit);
    let mut shares: Vec<f64> = results().map(|result| result.share).collect();
    shares.sort_by(f64::total_cmp);
    let count = shares.len();
    let worst = *shares.first()?;
    let equal: Vec<_> = results().filter(|result| result.share >= EQUAL).collect();
    let mut late: Vec<f64> = results().map(|result| result.late_share).collect();
    late.sort_by(f64::total_cmp);
    let within = equal.iter().filter(|result| result.p50_ratio <= SLOWER).count();
    Some(Ranking {
        limit: limit.into(),
        median: shares[count / 2],
        tenth: shares[count / 10],
        worst,
        below_nine_tenths: shares.iter().filter(|share| **share < 0.9).count() as f64 / count as f64,
        equal: equal.len(),
        p50_within: within as f64 / equal.len().max(1) as f64,
        late_median: late[count / 2],
        late_tenth: late[count - 1 - count / 10],
        late_within: late.iter().filter(|share| **share <= LATE).count() as f64 / count as f64,
    })
}

/// The `count` cases in which a limit is worst, the worst first.
pub fn worst_cases<'a>(limit: &str, cases: &'a [CaseResult], count: usize) -> Vec<(&'a CaseResult, &'a LimitResult)> {
    let of_limit = |case: &'a CaseResult| case.limits.iter().find(|result| result.limit == limit);
    let mut found: Vec<_> = cases.iter().filter_map(|case| Some((case, of_limit(case)?))).collect();
    found.sort_by(|a, b| a.1.share.total_cmp(&b.1.share));
    found.truncate(count);
    found
}
