//! Retest of an advice: the advised setups, the policy, and all possibly better setups are measured
//! on requests that were not used in training.
//!
//! Does not contain the advice.

use super::advice::Advice;
use super::{Bench, Candidate, Measurement, TrainingPlan, Trial};
use crate::error::RunError;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, Curves};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Offset of these seeds from those of the training's rounds.
const SEED_OFFSET: u32 = 1 << 20;
/// Factor on the longest training measurement's number of requests.
const REQUEST_FACTOR: u64 = 4;
/// Maximum measured time per setup and load, in seconds, except for the minimum number of requests.
const MAX_SECONDS: f64 = 8.0;
/// Maximum number of retested loads if measurements take real time.
const MAX_LOADS: usize = 5;
/// Number of rounds in real time; each setup's median counts. The setups take turns, so that other
/// load on the machine affects all alike.
const ROUNDS: u32 = 3;

/// Result of the retest at one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetestResult {
    /// The load.
    pub load: Rate,
    /// Advised setup with its tail.
    pub advised: (ThreadingSetup, Nanos),
    /// Setup with the lowest tail.
    pub best: (ThreadingSetup, Nanos),
    /// Tail of the policy; `None` if it did not sustain the load.
    pub policy: Option<Nanos>,
    /// Number of requests of each setup, over all its measurements.
    pub requests: u64,
}

impl RetestResult {
    /// Ratio of the advised setup's tail to the best.
    pub fn factor(&self) -> f64 {
        ratio(self.advised.1, self.best.1)
    }

    /// Ratio of the policy's tail to the best.
    pub fn policy_factor(&self) -> Option<f64> {
        self.policy.map(|tail| ratio(tail, self.best.1))
    }
}

fn ratio(one: Nanos, other: Nanos) -> f64 {
    one.0 as f64 / other.0.max(1) as f64
}

/// Measures all setups that sustain each load of the advice, and the policy `leeward`; calls `tell`
/// with each load. A load that the advised setup did not sustain counts as the longest tail.
///
/// # Errors
/// A failed measurement, or `stop` was set.
pub fn retest(
    bench: &dyn Bench,
    advice: &Advice,
    curves: &Curves,
    plan: &TrainingPlan,
    report_load: &dyn Fn(Rate),
    stop: &AtomicBool,
) -> Result<Vec<RetestResult>, RunError> {
    let shared = Arc::new(curves.clone());
    let is_real = bench.is_real_time();
    let every = if is_real { advice.rows.len().div_ceil(MAX_LOADS).max(1) } else { 1 };
    let mut results = Vec::new();
    // The highest load is always retested: the choice matters most there.
    for row in advice.rows.iter().rev().step_by(every) {
        let load = row.load;
        report_load(load);
        let advised = advised(advice, load).unwrap_or(row.best);
        let most = plan.max_requests * REQUEST_FACTOR;
        let requests = if is_real { ((load.0 * MAX_SECONDS) as u64).clamp(plan.min_requests, most) } else { most };
        let setups: Vec<ThreadingSetup> =
            curves.all().iter().filter(|curve| sustains(curve, load)).map(|curve| curve.setup).collect();
        let rounds = if is_real { ROUNDS } else { 1 };
        let requests = (requests / u64::from(rounds)).max(plan.min_requests);
        let (mut tails_of, mut tails_of_policy) = (vec![Vec::new(); setups.len()], Vec::new());
        // A load that was not sustained counts as the longest tail.
        let tail = |sample: Measurement| if sample.is_sustained() { sample.tail(plan.tail) } else { Nanos::MAX };
        for round in 0..rounds {
            let trial = |candidate| Trial { candidate, load, requests, round: SEED_OFFSET + round };
            let measure_one = |setup: &ThreadingSetup| {
                if stop.load(Ordering::Relaxed) {
                    return Err(RunError::Cancelled);
                }
                bench.measure(&trial(Candidate::Setup(*setup)), stop).map(tail)
            };
            let tails: Result<Vec<Nanos>, RunError> = match bench.is_parallel() {
                true => setups.par_iter().map(measure_one).collect(),
                false => setups.iter().map(measure_one).collect(),
            };
            tails_of.iter_mut().zip(tails?).for_each(|(all, tail)| all.push(tail));
            tails_of_policy.push(tail(bench.measure(&trial(Candidate::Policy(&shared)), stop)?));
        }
        let sustained = |tail: Nanos| (tail < Nanos::MAX).then_some(tail);
        let tails: Vec<(ThreadingSetup, Nanos)> = setups
            .into_iter()
            .zip(tails_of)
            .filter_map(|(setup, all)| Some((setup, sustained(median(all))?)))
            .collect();
        let Some(best) = tails.iter().min_by_key(|(_, tail)| *tail).copied() else { continue };
        let retested = tails.iter().find(|(setup, _)| *setup == advised).copied().unwrap_or((advised, Nanos::MAX));
        let policy = sustained(median(tails_of_policy));
        results.push(RetestResult { load, advised: retested, best, policy, requests: requests * u64::from(rounds) });
    }
    results.reverse();
    Ok(results)
}

fn median(mut tails: Vec<Nanos>) -> Nanos {
    tails.sort_unstable();
    tails.get(tails.len() / 2).copied().unwrap_or(Nanos::MAX)
}

fn sustains(curve: &Curve, load: Rate) -> bool {
    load.0 <= curve.max_load
}

/// Setup of the advice's step for a load.
fn advised(advice: &Advice, load: Rate) -> Option<ThreadingSetup> {
    let mut steps = advice.steps.iter().enumerate();
    let at = steps.rfind(|(index, (from, _))| *index == 0 || load.0 > from.0);
    at.map(|(_, (_, setup))| *setup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::advice::{AdviceQuery, advise};
    use leeward_outcome::Percentiles;
    use leeward_threading::curves::{CurvePoint, TailPercentile};

    /// Setups whose tails differ from those in the training.
    struct DriftedBench;

    impl Bench for DriftedBench {
        fn measure(&self, trial: &Trial<'_>, _: &AtomicBool) -> Result<Measurement, RunError> {
            let Trial { candidate, load, requests, round } = *trial;
            assert!(round >= SEED_OFFSET && requests == 8_000, "{round} {requests}");
            let us = match candidate {
                Candidate::Setup(setup) if setup.to_string() == "SIP1" => 300,
                Candidate::Setup(_) => 200 + load.0 as u64,
                Candidate::Policy(curves) => {
                    assert_eq!(curves.all().len(), 2);
                    220
                }
            };
            Ok(sample(us, requests))
        }
    }

    fn sample(us: u64, count: u64) -> Measurement {
        let tail = Nanos::from_micros(us);
        let latency = Percentiles { count, mean_ns: 1.0, p50: tail, p90: tail, p99: tail, p999: tail, max: tail };
        Measurement { issued: count, completed: count, latency, cpu: 1.0, clients_late: false, noise: 0.0 }
    }

    fn curve(setup: &str, us: f64) -> Curve {
        let point =
            |load| CurvePoint { load, p50_us: us, p99_us: us, p999_us: us, cpu: 1.0, samples: 2_000, spread: 0.01 };
        Curve { setup: setup.parse().unwrap(), points: vec![point(10.0), point(100.0)], max_load: 100.0 }
    }

    #[test]
    fn a_retest_detects_outdated_advice() {
        let curves = Curves::new(vec![curve("SIP1", 100.0), curve("SDB1-4", 150.0)]).unwrap();
        let (slo, tail) = (Nanos::from_millis(1), TailPercentile::P99);
        let advice = advise(&curves, &AdviceQuery { slo, tail, min_load: Rate(10.0), max_load: Rate(90.0) });
        let plan = TrainingPlan::new(curves.all().iter().map(|curve| curve.setup).collect());
        let results = retest(&DriftedBench, &advice, &curves, &plan, &|_| (), &AtomicBool::new(false)).unwrap();
        assert_eq!(results.len(), advice.rows.len());
        assert!(results.windows(2).all(|pair| pair[0].load < pair[1].load));
        for result in results {
            assert_eq!((result.advised.0.to_string(), result.best.0.to_string()), ("SIP1".into(), "SDB1-4".into()));
            let best = 200.0 + result.load.0.floor();
            assert!((result.factor() - 300.0 / best).abs() < 1e-9, "{result:?}");
            assert!((result.policy_factor().unwrap() - 220.0 / best).abs() < 1e-9, "{result:?}");
        }
    }
}
