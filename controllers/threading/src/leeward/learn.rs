//! Learning at run time: the deviation of each setup from its curve, by load, and the choice of a
//! neighbour for a trial. Does not contain changes of the setup for the load.

use super::super::curves::Curves;
use super::super::policy::ThreadSignals;
use super::super::setup::{Setup, ThreadingSetup};
use super::detect::LoadBounds;
use leeward_core::units::{Nanos, Time};

/// Buckets of load, each a factor of √2 wide: all rates below four billion.
const BUCKETS: usize = 64;
/// Latency windows that a trained curve counts as.
const PRIOR: f64 = 20.0;
/// Weight of a window relative to the next one.
const DISCOUNT: f64 = 0.98;
/// Possible improvement of a setup over its known tail: one standard deviation of a window's log
/// tail (assumed: 0.3).
const OPTIMISM: f64 = 0.3;
/// Requests of a trial, which is one latency window.
const TRIAL: u64 = 500;
/// Completed requests for each request that may be part of a trial.
const TRIAL_INTERVAL: u64 = 100;
/// Late requests, and requests in all, whose ratio ends a trial.
const LATE_LIMIT: (u64, u64) = (3, 50);
/// Longest trial.
const MAX_TRIAL: Nanos = Nanos::from_secs(10);
/// Deviation of the log tail that counts as zero, and the sum of deviations at which curves are
/// stale.
const DRIFT: (f64, f64) = (0.1, 2.0);

/// Mode of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// No learning.
    Off,
    /// Shadow mode: reports the choice without effect.
    Shadow,
    /// Chooses by the learned values, and tries neighbours.
    On,
}

/// Learned deviations and the current trial; see the module.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    mode: Mode,
    setups: usize,
    /// Per bucket and setup: sum of deviations, and the number of windows in it.
    deviations: Vec<(f64, f64)>,
    window: u64,
    trial: Option<Trial>,
    /// Requests that ended in trials.
    trial_requests: u64,
    /// Sums of deviations upwards and downwards (Page–Hinkley, around zero).
    drift: (f64, f64),
}

/// A trial of a neighbour.
#[derive(Clone, Copy, Debug)]
struct Trial {
    origin: usize,
    start: Time,
    window: u64,
    ended: u64,
    late: u64,
}

impl Learner {
    /// Creates a learner for this number of setups.
    pub(super) fn new(mode: Mode, setups: usize) -> Self {
        // Allocates everything now, so that nothing is allocated later.
        let len = if mode == Mode::Off { 0 } else { BUCKETS * setups };
        Learner {
            mode,
            setups,
            deviations: vec![(0.0, 0.0); len],
            window: 0,
            trial: None,
            trial_requests: 0,
            drift: (0.0, 0.0),
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.mode == Mode::Off
    }

    pub(super) fn is_on(&self) -> bool {
        self.mode == Mode::On
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Whether latencies have differed from the curves for long.
    pub(super) fn is_stale(&self) -> bool {
        self.drift.0.max(self.drift.1) > DRIFT.1
    }

    /// Takes in the last latency window, if it is new. The setup at `index` was predicted to have
    /// this tail at this load. Returns whether there was a new window.
    pub(super) fn observe(
        &mut self,
        signals: &ThreadSignals,
        load: f64,
        index: usize,
        predicted: Option<Nanos>,
    ) -> bool {
        if self.is_off() || signals.latencies.window <= self.window {
            return false;
        }
        self.window = signals.latencies.window;
        let Some(predicted) = predicted else { return false };
        // Bounded: a stall of a second among microseconds must not count as a thousand windows.
        let deviation = (signals.latencies.p99.0.max(1) as f64 / predicted.0.max(1) as f64).ln().clamp(-2.0, 2.0);
        let (sum, count) = &mut self.deviations[bucket(load) * self.setups + index];
        (*sum, *count) = (*sum * DISCOUNT + deviation, *count * DISCOUNT + 1.0);
        let (up, down) = self.drift;
        self.drift = (
            (up + deviation - DRIFT.0).clamp(0.0, DRIFT.1 * 2.0),
            (down - deviation - DRIFT.0).clamp(0.0, DRIFT.1 * 2.0),
        );
        true
    }

    /// Ratio of the tail of the setup at `index` to its curve, at this load; 1 without
    /// measurements.
    pub(super) fn factor(&self, load: f64, index: usize) -> f64 {
        if self.is_off() {
            return 1.0;
        }
        let (sum, count) = self.deviations[bucket(load) * self.setups + index];
        (sum / (PRIOR + count)).exp()
    }

    /// The factor, lowered by the possible improvement.
    fn optimistic_factor(&self, load: f64, index: usize) -> f64 {
        let (_, count) = self.deviations[bucket(load) * self.setups + index];
        self.factor(load, index) * (-OPTIMISM / (1.0 + count).sqrt()).exp()
    }

    /// Returns a neighbour of the setup at `home` that is worth a trial now; `tail` returns the
    /// curves' prediction for a setup.
    pub(super) fn trial(
        &mut self,
        signals: &ThreadSignals,
        bounds: &LoadBounds,
        curves: &Curves,
        home: usize,
        tail: impl Fn(usize) -> Option<f64>,
    ) -> Option<usize> {
        let is_permitted = (self.trial_requests + TRIAL).saturating_mul(TRIAL_INTERVAL) <= signals.completions;
        if !self.is_on() || self.trial.is_some() || !is_permitted {
            return None;
        }
        let all = curves.all();
        let is_safe = |index: &usize| bounds.high < all[*index].max_load / 2.0;
        let known = tail(home)? * self.factor(bounds.mean, home);
        let hoped = |index: usize| Some((tail(index)? * self.optimistic_factor(bounds.mean, index), index));
        let near = (0..all.len()).filter(|index| are_neighbours(all[*index].setup, all[home].setup));
        let best = near.filter(is_safe).filter_map(hoped).min_by(|a, b| a.0.total_cmp(&b.0));
        let (_, index) = best.filter(|(hoped, _)| is_safe(&home) && *hoped < known)?;
        let ThreadSignals { now, completions: ended, late, .. } = *signals;
        self.trial = Some(Trial { origin: home, start: now, window: signals.latencies.window, ended, late });
        Some(index)
    }

    /// Whether a trial is in progress.
    pub(super) fn has_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Ends the trial if it has its window, if too many requests are late, or if the load has
    /// changed. Returns the index of the setup to return to, and whether too many were late.
    pub(super) fn finish_trial(&mut self, signals: &ThreadSignals, is_safe: bool) -> Option<(usize, bool)> {
        let trial = self.trial?;
        let (ended, late) = (signals.completions.saturating_sub(trial.ended), signals.late.saturating_sub(trial.late));
        let is_bad = late >= LATE_LIMIT.0 && late * LATE_LIMIT.1 >= ended * LATE_LIMIT.0;
        let is_over =
            signals.latencies.window > trial.window || ended >= TRIAL || signals.now.since(trial.start) > MAX_TRIAL;
        if !(is_bad || is_over || !is_safe) {
            return None;
        }
        self.trial = None;
        self.trial_requests += ended;
        Some((trial.origin, is_bad))
    }

    /// Records that the setup at `index` was bad in a trial that ended early, like a window that
    /// was twice as slow.
    pub(super) fn penalize(&mut self, load: f64, index: usize) {
        if let Some((sum, count)) = self.deviations.get_mut(bucket(load) * self.setups + index) {
            (*sum, *count) = (*sum + std::f64::consts::LN_2, *count + 1.0);
        }
    }
}

fn bucket(load: f64) -> usize {
    // A load of NaN is in the first bucket.
    (load.max(1.0).log2() * 2.0).min(BUCKETS as f64 - 1.0) as usize
}

/// Whether two setups are of one model and differ in one pool, by a factor of two.
fn are_neighbours(a: ThreadingSetup, b: ThreadingSetup) -> bool {
    let (Some(a), Some(b)) = (a.setup(), b.setup()) else { return false };
    let model = |setup: Setup| (setup.fanout, setup.handling, setup.wait);
    let pools = [(a.network, b.network), (a.worker, b.worker), (a.response, b.response)];
    let doubled = |(a, b): &(u16, u16)| *a == b.saturating_mul(2) || *b == a.saturating_mul(2);
    let mut other = pools.iter().filter(|(a, b)| a != b);
    model(a) == model(b) && other.next().is_some_and(doubled) && other.next().is_none()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_one_pool_by_a_factor_of_two() {
        let check = |a: &str, b: &str, expected: bool| {
            let near = are_neighbours(a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((near, are_neighbours(b.parse().unwrap(), a.parse().unwrap())), (expected, expected), "{a} {b}");
        };
        check("SDB1-4", "SDB1-8", true);
        check("ADB1-4-4", "ADB1-4-2", true);
        check("SDB1-4", "SDB1-4", false);
        check("SDB1-4", "SDB1-16", false);
        check("SDB1-4", "SDB2-8", false);
        check("SDB1-4", "SDP1-8", false);
        check("SIP1", "CORE2", false);
    }

    #[test]
    fn any_load_has_a_bucket() {
        for load in [0.0, -1.0, f64::NAN, 1.0, 1e300, f64::INFINITY] {
            assert!(bucket(load) < BUCKETS, "{load}");
        }
        assert_eq!(bucket(1_000.0) + 1, bucket(1_000.0 * 1.4143));
    }
}
