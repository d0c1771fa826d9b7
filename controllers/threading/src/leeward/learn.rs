//! Learning while serving: how much slower or quicker each setup is than its curve, by load, and which neighbour is worth a trial. Never
//! here: when a setup is changed for the load.

use super::super::curves::Curves;
use super::super::policy::ThreadSignals;
use super::super::setup::{Setup, ThreadingSetup};
use super::detect::LoadBounds;
use leeward_core::units::{Nanos, Time};

/// Buckets of load, each the root of two wide: all rates below four billion.
const BUCKETS: usize = 64;
/// Windows of latencies that a trained curve counts as.
const PRIOR: f64 = 20.0;
/// Weight of a window after the next one.
const DISCOUNT: f64 = 0.98;
/// How far a setup may be better than is known, in standard deviations of a window's log tail (assumed: 0.3).
const OPTIMISM: f64 = 0.3;
/// Requests of a trial, which is a window of latencies.
const TRIAL: u64 = 500;
/// Requests between two that may be part of a trial.
const TRIAL_INTERVAL: u64 = 100;
/// Late requests that end a trial, of so many.
const LATE_LIMIT: (u64, u64) = (3, 50);
/// Longest trial.
const MAX_TRIAL: Nanos = Nanos::from_secs(10);
/// Deviation of the log tail that is none, and the sum of deviations at which curves are stale.
const DRIFT: (f64, f64) = (0.1, 2.0);

/// Whether it learns, and whether that has consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// No learning.
    Off,
    /// Says what it would choose.
    Shadow,
    /// Chooses, and tries neighbours.
    On,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    mode: Mode,
    setups: usize,
    /// Per bucket and setup: sum of deviations, and how many windows they count as.
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
    /// Of so many setups.
    pub(super) fn new(mode: Mode, setups: usize) -> Self {
        // All at once: nothing is allocated by the way.
        let room = if mode == Mode::Off { 0 } else { BUCKETS * setups };
        Learner {
            mode,
            setups,
            deviations: vec![(0.0, 0.0); room],
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

    /// Whether latencies have been unlike the curves for long.
    pub(super) fn is_stale(&self) -> bool {
        self.drift.0.max(self.drift.1) > DRIFT.1
    }

    /// Takes in the last window of latencies, if it is new: the setup at `place` was predicted to have this tail at this load. Whether
    /// there was one.
    pub(super) fn observe(
        &mut self,
        signals: &ThreadSignals,
        load: f64,
        place: usize,
        predicted: Option<Nanos>,
    ) -> bool {
        if self.is_off() || signals.latencies.window <= self.window {
            return false;
        }
        self.window = signals.latencies.window;
        let Some(predicted) = predicted else { return false };
        // Bounded: a stall of a second among microseconds should not count as a thousand windows.
        let deviation = (signals.latencies.p99.0.max(1) as f64 / predicted.0.max(1) as f64).ln().clamp(-2.0, 2.0);
        let (sum, count) = &mut self.deviations[bucket(load) * self.setups + place];
        (*sum, *count) = (*sum * DISCOUNT + deviation, *count * DISCOUNT + 1.0);
        let (up, down) = self.drift;
        self.drift = (
            (up + deviation - DRIFT.0).clamp(0.0, DRIFT.1 * 2.0),
            (down - deviation - DRIFT.0).clamp(0.0, DRIFT.1 * 2.0),
        );
        true
    }

    /// Tail of the setup at `place` over what its curve says, at this load; 1 where nothing was seen.
    pub(super) fn factor(&self, load: f64, place: usize) -> f64 {
        if self.is_off() {
            return 1.0;
        }
        let (sum, count) = self.deviations[bucket(load) * self.setups + place];
        (sum / (PRIOR + count)).exp()
    }

    /// The same as it might be.
    fn optimistic_factor(&self, load: f64, place: usize) -> f64 {
        let (_, count) = self.deviations[bucket(load) * self.setups + place];
        self.factor(load, place) * (-OPTIMISM / (1.0 + count).sqrt()).exp()
    }

    /// A neighbour of the setup at `home` that is worth a trial now: `tail` says what curves predict for a setup.
    pub(super) fn trial(
        &mut self,
        signals: &ThreadSignals,
        bounds: &LoadBounds,
        curves: &Curves,
        home: usize,
        tail: impl Fn(usize) -> Option<f64>,
    ) -> Option<usize> {
        let has_room = (self.trial_requests + TRIAL).saturating_mul(TRIAL_INTERVAL) <= signals.completions;
        if !self.is_on() || self.trial.is_some() || !has_room {
            return None;
        }
        let all = curves.all();
        let is_safe = |place: &usize| bounds.high < all[*place].max_load / 2.0;
        let known = tail(home)? * self.factor(bounds.mean, home);
        let hoped = |place: usize| Some((tail(place)? * self.optimistic_factor(bounds.mean, place), place));
        let near = (0..all.len()).filter(|place| are_neighbours(all[*place].setup, all[home].setup));
        let best = near.filter(is_safe).filter_map(hoped).min_by(|a, b| a.0.total_cmp(&b.0));
        let (_, place) = best.filter(|(hoped, _)| is_safe(&home) && *hoped < known)?;
        let ThreadSignals { now, completions: ended, late, .. } = *signals;
        self.trial = Some(Trial { origin: home, start: now, window: signals.latencies.window, ended, late });
        Some(place)
    }

    /// Whether a trial is going on.
    pub(super) fn has_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Place to go back to, if the trial is over: it has its window, too many requests are late, or the load is another. And whether too many
    /// were.
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

    /// The setup at `place` was not good in a trial that ended early: as if a window had been twice as slow.
    pub(super) fn penalize(&mut self, load: f64, place: usize) {
        if let Some((sum, count)) = self.deviations.get_mut(bucket(load) * self.setups + place) {
            (*sum, *count) = (*sum + std::f64::consts::LN_2, *count + 1.0);
        }
    }
}

fn bucket(load: f64) -> usize {
    // Of a load that is no number, the first.
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
    fn neighbours_differ_in_one_pool_by_two() {
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
