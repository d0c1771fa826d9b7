//! High percentile of the sojourn time, by stochastic approximation over all cores. The cores count
//! responses above the current estimate, and the estimate moves until this share equals the allowed
//! share of late responses. Does not contain decisions that follow from it.
//!
//! - **Percentile**: that of an objective of the 99th percentile, with half of the allowed share in
//!   reserve. Responses of a nearly empty server may be late as well. No bound can prevent that, so
//!   their share is allowed as well, and as much again for waiting.
//! - **Per response**, not per time: a time without responses changes nothing.

use crate::breakwater::samples::Totals;
use leeward_core::units::Nanos;

/// Share of responses that may be late: half of the share that an objective of the 99th percentile
/// allows, so that the percentile stays within it.
const LATE_ALLOWED: f64 = 0.005;
/// Responses in one memory, in objectives.
const MEMORY: f64 = 20.0;
/// Minimum responses in one memory: eight of them may be late. With fewer, a single chance response
/// would raise the estimate by half.
const LEAST_MEMORY: f64 = 8.0 / LATE_ALLOWED;
/// Largest change per update, as a logarithm: the change by one slow response. If all requests take
/// equally long, a whole batch of responses exceeds the estimate or none does.
const LEAP: f64 = 1.0 / (LATE_ALLOWED * LEAST_MEMORY);
/// Shortest and longest estimate, in objectives. Both are within one memory of the objective, so
/// that the estimate returns as soon as its cause is over.
const SHORTEST: f64 = 1.0 / 64.0;
const LONGEST: f64 = 2.0;

/// Estimate of the sojourn percentile.
#[derive(Debug)]
pub(super) struct SojournPercentile {
    objective: f64,
    span: f64,
    /// Share of late responses while the server is nearly empty.
    idle_late_share: f64,
}

impl SojournPercentile {
    /// Starts at half of the objective, since nothing is known: the way in both directions is
    /// short.
    pub(super) fn new(objective: f64) -> Self {
        SojournPercentile { objective, span: objective * 0.5, idle_late_share: 0.0 }
    }

    /// Takes in new responses. Returns their number in memories, at most one.
    ///
    /// `per_objective` is the number of responses in an objective. `is_idle`: the server was nearly
    /// empty. `is_excused`: what is late then is allowed.
    pub(super) fn learn(&mut self, new: &Totals, per_objective: f64, is_idle: bool, is_excused: bool) -> f64 {
        let served = new.served as f64;
        let memory = (per_objective * MEMORY).max(LEAST_MEMORY);
        let memories = (served / memory).min(1.0);
        if is_idle {
            self.idle_late_share += (new.late as f64 / served - self.idle_late_share) * memories;
        }
        let allowed = LATE_ALLOWED + if is_excused { self.idle_late_share * 2.0 } else { 0.0 };
        // After one memory without a slower response the estimate is 1/e of what it was; with twice
        // the allowed share, e times.
        let surprise = (new.above_percentile as f64 - allowed * served) / (allowed * memory);
        let (shortest, longest) = (self.objective * SHORTEST, self.objective * LONGEST);
        self.span = (self.span * surprise.clamp(-LEAP, LEAP).exp()).clamp(shortest, longest);
        memories
    }

    /// Forgets what was late while the server was nearly empty.
    pub(super) fn forget_idle(&mut self) {
        self.idle_late_share = 0.0;
    }

    /// Returns the share of late responses while the server is nearly empty.
    pub(super) fn idle_late_share(&self) -> f64 {
        self.idle_late_share
    }

    /// Returns the estimate, in objectives.
    pub(super) fn in_objectives(&self) -> f64 {
        self.span / self.objective
    }

    /// Returns the estimate.
    pub(super) fn span(&self) -> Nanos {
        Nanos(self.span as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Feeds batches of ten responses with sojourn times spread evenly from 0 to `most`; the
    /// objective is 100 us.
    fn learn_batches(percentile: &mut SojournPercentile, batches: u32, most: f64, is_idle: bool) {
        let mut number = 0u32;
        for _ in 0..batches {
            let mut new = Totals { served: 10, ..Totals::default() };
            for _ in 0..10 {
                number += 1;
                // The golden ratio spreads the values evenly, without a period.
                let took = (f64::from(number) * 0.618_034).fract() * most;
                new.late += u64::from(took > 100_000.0);
                new.above_percentile += u64::from(took > percentile.span);
            }
            percentile.learn(&new, 20.0, is_idle, true);
        }
    }

    #[test]
    fn the_estimate_converges_to_the_percentile_of_the_sojourns() {
        for most in [10_000.0, 60_000.0, 150_000.0] {
            let mut percentile = SojournPercentile::new(100_000.0);
            learn_batches(&mut percentile, 5_000, most, false);
            let ratio = percentile.span / (most * (1.0 - LATE_ALLOWED));
            assert!((0.87..1.15).contains(&ratio), "{} of {most}", percentile.span);
        }
    }

    #[test]
    fn late_responses_of_an_idle_server_do_not_count() {
        let mut percentile = SojournPercentile::new(100_000.0);
        learn_batches(&mut percentile, 5_000, 125_000.0, true);
        assert!(percentile.in_objectives() < 0.85, "a fifth is late whatever one does: {}", percentile.in_objectives());
    }

    #[test]
    fn the_estimate_recovers_after_an_extreme_value() {
        let mut percentile = SojournPercentile::new(100_000.0);
        learn_batches(&mut percentile, 1_000, 10_000_000.0, false);
        assert!((percentile.in_objectives() - LONGEST).abs() < 1e-9);
        let memory = (LEAST_MEMORY / 10.0) as u32;
        learn_batches(&mut percentile, memory, 1_000.0, false);
        assert!(percentile.in_objectives() < 1.0, "one memory later: {}", percentile.in_objectives());
    }
}
