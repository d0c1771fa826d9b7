//! Bounds of the load: the two rates between which it surely lies, from windows of 5 to some
//! thousand arrivals and from silence. Does not contain reactions to a load.
//!
//! Each window of n gaps in a time t gives two bounds, which a Poisson stream violates with a small
//! probability. Short windows react at once with wide bounds, long windows react late with narrow
//! ones. The bounds are intersected from the shortest window on. A window whose bounds no longer
//! meet the others covers an earlier load: this window and all longer ones are discarded (the rule
//! of intersecting confidence intervals, Goldenshluger and Nemirovski 1997).
//!
//! Poisson is the worst case of independent clients; gaps that vary less keep the bounds with
//! higher probability.

use super::super::window::ArrivalWindow;
use leeward_core::units::{Nanos, Time};

/// Arrivals in the ring's windows.
const CHECKPOINTS: [usize; 8] = [5, 8, 12, 16, 24, 32, 48, 64];
/// Arrivals of the shortest window beyond the ring; each further one is twice as long.
const FIRST_LONG: u64 = 128;
/// Number of windows beyond the ring: the longest has 4,096 arrivals, which bound a rate to ± 7 %.
const LONG_WINDOWS: usize = 6;

/// Bounds of a load, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadBounds {
    /// Lower bound.
    pub(super) low: f64,
    /// Estimate, within the bounds.
    pub(super) mean: f64,
    /// Upper bound.
    pub(super) high: f64,
    /// Arrivals in the estimate.
    pub(super) arrivals: u64,
}

/// Bounds on the expected number of arrivals, given a count.
#[derive(Clone, Copy, Debug)]
struct Limits {
    low: f64,
    high: f64,
}

/// Detector of the load; see the module.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    silence: f64,
    checkpoints: [Limits; CHECKPOINTS.len()],
    long_windows: [Limits; LONG_WINDOWS],
    /// Inverse of the number of arrivals of each long window.
    shares: [f64; LONG_WINDOWS],
    /// Start of each long window, and of its successor.
    anchors: [[Anchor; 2]; LONG_WINDOWS],
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Anchor {
    time: Time,
    total: u64,
}

impl Detector {
    /// Creates a detector whose bounds all together fail with probability `error` per decision.
    pub(super) fn new(error: f64) -> Self {
        let checks = (CHECKPOINTS.len() + LONG_WINDOWS + 1) as f64;
        let one = error / checks;
        let quantile = normal_quantile(1.0 - one);
        Detector {
            silence: -one.ln(),
            checkpoints: CHECKPOINTS.map(|entries| limits(entries - 1, quantile)),
            long_windows: std::array::from_fn(|level| limits((FIRST_LONG << level) as usize, quantile)),
            shares: std::array::from_fn(|level| 1.0 / (FIRST_LONG << level) as f64),
            anchors: [[Anchor::default(); 2]; LONG_WINDOWS],
            begun: false,
        }
    }

    /// Time without an arrival after which the load is surely below `rate`.
    pub(super) fn silence(&self, rate: f64) -> Nanos {
        Nanos::from_secs_f64(self.silence / rate)
    }

    /// Returns the bounds now; `None` until a window gives an upper bound.
    pub(super) fn update(&mut self, window: &ArrivalWindow, now: Time) -> Option<LoadBounds> {
        let here = Anchor { time: now, total: window.total() };
        if !self.begun {
            (self.begun, self.anchors) = (true, [[here; 2]; LONG_WINDOWS]);
        }
        let mut bounds = LoadBounds { low: 0.0, mean: 0.0, high: f64::INFINITY, arrivals: 0 };
        let clear = window.since_stall();
        // Start of the last accepted window. Longer windows that cover another load restart there.
        let mut begin = here;
        if let Some(newest) = clear.last() {
            bounds.intersect(0, seconds(now, *newest), Limits { low: 0.0, high: self.silence });
        }
        for (entries, limits) in CHECKPOINTS.iter().zip(self.checkpoints) {
            let Some(start) = clear.len().checked_sub(*entries) else { break };
            if !bounds.intersect(*entries as u64 - 1, seconds(now, clear[start]), limits) {
                self.anchors = [[begin; 2]; LONG_WINDOWS];
                return bounds.if_known();
            }
            begin = Anchor { time: clear[start], total: here.total.saturating_sub(*entries as u64 - 1) };
        }
        for (level, limits) in self.long_windows.into_iter().enumerate() {
            let length = FIRST_LONG << level;
            let [start, _] = self.anchors[level];
            let count = here.total.saturating_sub(start.total);
            if count < length {
                break;
            }
            // The bounds of `length` arrivals, scaled: slightly wider than those of the `count`
            // arrivals.
            let scale = count as f64 * self.shares[level];
            let limits = Limits { low: limits.low * scale, high: limits.high * scale };
            if !bounds.intersect(count, seconds(now, start.time), limits) {
                self.anchors[level..].fill([begin; 2]);
                break;
            }
            begin = start;
        }
        for (level, [start, next]) in self.anchors.iter_mut().enumerate() {
            if here.total.saturating_sub(next.total) >= FIRST_LONG << level {
                (*start, *next) = (*next, here);
            }
        }
        bounds.if_known()
    }
}

impl LoadBounds {
    /// Intersects with the bounds of a window of `gaps` in this many seconds; returns whether they
    /// meet.
    fn intersect(&mut self, gaps: u64, seconds: f64, limits: Limits) -> bool {
        // A clock that stands still says nothing.
        if seconds <= 0.0 {
            return true;
        }
        // One division for all three: divisions are most of a decision's cost.
        let per_second = 1.0 / seconds;
        let (low, high) = (limits.low * per_second, limits.high * per_second);
        if low > self.high || high < self.low {
            return false;
        }
        (self.low, self.high) = (self.low.max(low), self.high.min(high));
        self.mean = gaps as f64 * per_second;
        self.arrivals = gaps;
        true
    }

    fn if_known(mut self) -> Option<LoadBounds> {
        self.mean = self.mean.clamp(self.low, self.high);
        self.high.is_finite().then_some(self)
    }
}

fn seconds(now: Time, then: Time) -> f64 {
    now.since(then).0 as f64 * 1e-9
}

/// Bounds on the expected number of arrivals for an observed `count`, each with the error
/// probability of `quantile`. The exact bounds are quantiles of the gamma distribution; this is the
/// approximation of Wilson and Hilferty (within 3 % of them from 8 on, and wider below).
fn limits(count: usize, quantile: f64) -> Limits {
    let cube = |shape: f64, quantile: f64| {
        let root = 1.0 - 1.0 / (9.0 * shape) + quantile / (3.0 * shape.sqrt());
        shape * root.max(0.0).powi(3)
    };
    let count = count as f64;
    Limits { low: cube(count, -quantile), high: cube(count + 1.0, quantile) }
}

/// Standard normal quantile of a probability above one half (Abramowitz and Stegun 26.2.23, within
/// 4.5e-4).
fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * (1.0 - probability).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// P(Poisson(mean) ≥ count), summed from its tail.
    fn tail(mean: f64, count: u32) -> f64 {
        let log = |k: u32| f64::from(k) * mean.ln() - mean - (1..=k).map(|i| f64::from(i).ln()).sum::<f64>();
        (count..count + 400).map(|k| log(k).exp()).sum()
    }

    #[test]
    fn limits_are_those_of_the_poisson_distribution() {
        let quantile = normal_quantile(1.0 - 1e-4);
        assert!((quantile - 3.719).abs() < 1e-3);
        for count in [7, 11, 15, 31, 63, 128, 1_024] {
            let limits = limits(count, quantile);
            let missed = [tail(limits.low, count as u32), 1.0 - tail(limits.high, count as u32 + 1)];
            for missed in missed {
                assert!((0.4e-4..1.6e-4).contains(&missed), "{count}: {missed:e}");
            }
        }
        // Below that count the bounds are on the safe side.
        assert!(tail(limits(4, quantile).low, 4) < 1e-4);
    }

    #[test]
    fn the_bounds_narrow_under_a_steady_load() {
        let mut detector = Detector::new(1e-4);
        let stamp = |n: u64| Time(n * 1_000_000);
        let mut before = f64::INFINITY;
        for (arrivals, width) in [(5, 40.0), (64, 1.4), (1_024, 0.4), (8_192, 0.16)] {
            let mut last = None;
            for n in 1..=arrivals {
                let window = ArrivalWindow::new((n.max(64) - 63..=n).map(stamp), n);
                last = detector.update(&window, stamp(n));
            }
            detector = Detector::new(1e-4);
            let bounds = last.unwrap();
            assert!(bounds.low <= 1_000.0 && bounds.high >= 1_000.0, "{bounds:?}");
            let wide = (bounds.high - bounds.low) / 1_000.0;
            assert!(wide <= width && wide < before, "{arrivals}: {bounds:?}");
            before = wide;
        }
    }

    #[test]
    fn a_change_of_load_resets_the_detector() {
        let mut detector = Detector::new(1e-4);
        let mut stamps = vec![Time(0)];
        let mut at = |detector: &mut Detector, gap: u64| {
            stamps.push(Time(stamps[stamps.len() - 1].0 + gap));
            let window =
                ArrivalWindow::new(stamps[stamps.len().saturating_sub(64)..].iter().copied(), stamps.len() as u64);
            detector.update(&window, stamps[stamps.len() - 1])
        };
        (0..5_000).for_each(|_| _ = at(&mut detector, 1_000_000));
        let first = (1..100).find(|_| at(&mut detector, 100_000).is_some_and(|bounds| bounds.low > 1_500.0));
        assert!(first.is_some_and(|arrivals| arrivals <= 12), "{first:?}");
        let later = (0..2_000).map(|_| at(&mut detector, 100_000)).last().flatten().unwrap();
        assert!(later.low > 8_000.0 && later.high < 12_000.0, "{later:?}");
    }
}
