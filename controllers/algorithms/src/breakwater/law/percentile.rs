//! How long nearly all requests stay in the server: a high percentile, by stochastic approximation over all cores. The cores count
//! the responses that took longer than it says, and it moves until as many did as may be late. Never here: what follows from it.
//!
//! - **Which percentile**: the one that an objective of the 99th asks for, half of it kept in hand. If requests are late though
//!   hardly anybody is in the server, no bound would mend that, and as many again may be late for waiting.
//! - **By responses**, not by time: a stillness says nothing.

use crate::breakwater::samples::Totals;
use leeward_core::units::Nanos;

/// Share of responses that may be late: half of what an objective of the 99th percentile allows, so that the percentile is within it.
const LATE_ALLOWED: f64 = 0.005;
/// Responses by which it is known, in objectives.
const MEMORY: f64 = 20.0;
/// At least so many: eight of them may be late. Of fewer, a chance one would say half as long again.
const LEAST_MEMORY: f64 = 8.0 / LATE_ALLOWED;
/// The most that it moves at once, as a logarithm: by as much as one that took longer moves it. Where all take equally long, a batch
/// of them is longer or not together.
const LEAP: f64 = 1.0 / (LATE_ALLOWED * LEAST_MEMORY);
/// The shortest and the longest that is known, in objectives: within a memory of the objective, so that it is back as soon as what it
/// says of is over.
const SHORTEST: f64 = 1.0 / 64.0;
const LONGEST: f64 = 2.0;

/// The percentile of what requests stay.
#[derive(Debug)]
pub(super) struct SojournPercentile {
    objective: f64,
    span: f64,
    /// Share of responses that is late though hardly anybody is in the server.
    idle_late_share: f64,
}

impl SojournPercentile {
    /// Nothing is known so far: half of the objective, so that neither way is long.
    pub(super) fn new(objective: f64) -> Self {
        SojournPercentile { objective, span: objective * 0.5, idle_late_share: 0.0 }
    }

    /// Takes in new responses. `per_objective`: how many there are in an objective; `is_idle`: hardly anybody was in the server with
    /// them. Returns how many memories they are, at most one.
    pub(super) fn learn(&mut self, new: &Totals, per_objective: f64, is_idle: bool) -> f64 {
        let served = new.served as f64;
        let memory = (per_objective * MEMORY).max(LEAST_MEMORY);
        let memories = (served / memory).min(1.0);
        if is_idle {
            self.idle_late_share += (new.late as f64 / served - self.idle_late_share) * memories;
        }
        let allowed = LATE_ALLOWED + self.idle_late_share * 2.0;
        // One memory in which nobody takes longer, and it is an e-th; twice as many as allowed, and it is e times as long.
        let surprise = (new.above_percentile as f64 - allowed * served) / (allowed * memory);
        let (shortest, longest) = (self.objective * SHORTEST, self.objective * LONGEST);
        self.span = (self.span * surprise.clamp(-LEAP, LEAP).exp()).clamp(shortest, longest);
        memories
    }

    /// The span, in objectives.
    pub(super) fn in_objectives(&self) -> f64 {
        self.span / self.objective
    }

    /// The span.
    pub(super) fn span(&self) -> Nanos {
        Nanos(self.span as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Responses in batches of ten, spread evenly from 0 to `most`, with an objective of 100 us.
    fn stay(stay: &mut SojournPercentile, batches: u32, most: f64, is_idle: bool) {
        let mut number = 0u32;
        for _ in 0..batches {
            let mut new = Totals { served: 10, ..Totals::default() };
            for _ in 0..10 {
                number += 1;
                // By the golden ratio: even, without a period.
                let took = (f64::from(number) * 0.618_034).fract() * most;
                new.late += u64::from(took > 100_000.0);
                new.above_percentile += u64::from(took > stay.span);
            }
            stay.learn(&new, 20.0, is_idle);
        }
    }

    #[test]
    fn it_is_the_percentile_that_may_not_be_late() {
        for most in [10_000.0, 60_000.0, 150_000.0] {
            let mut known = SojournPercentile::new(100_000.0);
            stay(&mut known, 5_000, most, false);
            let ratio = known.span / (most * (1.0 - LATE_ALLOWED));
            assert!((0.87..1.15).contains(&ratio), "{} of {most}", known.span);
        }
    }

    #[test]
    fn what_is_late_in_an_idle_server_does_not_count() {
        let mut known = SojournPercentile::new(100_000.0);
        stay(&mut known, 5_000, 125_000.0, true);
        assert!(known.in_objectives() < 0.85, "a fifth is late whatever one does: {}", known.in_objectives());
    }

    #[test]
    fn it_comes_back() {
        let mut known = SojournPercentile::new(100_000.0);
        stay(&mut known, 1_000, 10_000_000.0, false);
        assert!((known.in_objectives() - LONGEST).abs() < 1e-9);
        let memory = (LEAST_MEMORY / 10.0) as u32;
        stay(&mut known, memory, 1_000.0, false);
        assert!(known.in_objectives() < 1.0, "one memory later: {}", known.in_objectives());
    }
}
