//! Admission by efficiency: the pool grows while more load brings more responses (thesis Algorithm
//! 1; Hoover Algorithm 1). Detects locks and any other bottleneck that queues for CPUs don't show.

use super::iteration::{IterationEnd, IterationTracker};
use super::{Law, PoolBounds};
use crate::breakwater::config::{Config, Decrease, IncreaseRounding};
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Samples;
use crate::published::Version;
use leeward_core::server::Signals;
use leeward_core::sync::Arc;

/// Direction of the pool after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolStep {
    /// More load brings enough responses, or less load costs too many.
    Grow,
    /// More load brings too few responses, or less load costs few.
    Shrink,
}

/// Compares each iteration with the one before, and changes the pool accordingly.
#[derive(Debug)]
pub(super) struct Efficiency {
    version: Version,
    threshold: f64,
    drop_threshold: f64,
    additive: IncreaseRounding,
    alpha: f64,
    beta: f64,
    bounds: PoolBounds,
    /// Requests and responses per second in the last iteration.
    last_rates: (f64, f64),
    /// The pool with its fraction. A pool that other code has set replaces it.
    fractional_total: f64,
}

impl Efficiency {
    pub(super) fn new(config: &Config) -> Self {
        Efficiency {
            version: config.version,
            threshold: config.efficiency_threshold,
            drop_threshold: config.drop_threshold,
            additive: config.additive.unwrap_or(IncreaseRounding::AtLeastOne), // thesis §2.3.2, eq. 2.3
            alpha: config.alpha,
            beta: config.beta,
            bounds: PoolBounds::new(config),
            last_rates: (0.0, 0.0),
            fractional_total: config.min_pool.into(),
        }
    }

    /// Judges an iteration by the one before; an idle iteration lets the pool grow.
    ///
    /// The papers compare counts. Here counts are divided by the counted time, since an iteration
    /// follows its round trips and may have been extended. With counts, twice the time would look
    /// like twice the load and twice the throughput.
    pub(super) fn judge(&mut self, end: &IterationEnd, decrease: Decrease) -> PoolStep {
        let IterationEnd::Counted(iteration) = end else { return PoolStep::Grow };
        let seconds = match self.version {
            Version::Extended => iteration.duration.as_secs_f64(),
            Version::Published => 1.0, // counts
        };
        let (received, responses) = (iteration.received as f64 / seconds, iteration.responses as f64 / seconds);
        let (more_in, more_out) = (received - self.last_rates.0, responses - self.last_rates.1);
        self.last_rates = (received, responses);
        // The papers don't define 0/0. If neither rate has changed, one more credit is the next
        // experiment. A pool at its minimum would otherwise stay there while its clients keep their
        // rate.
        let unchanged = more_in == 0.0 && more_out == 0.0 && !self.version.is_published();
        let gained = match decrease {
            // Thesis Algorithm 1, lines 13 and 14.
            Decrease::Multiplicative => more_in * more_out > 0.0 && more_out.abs() > self.threshold * more_in.abs(),
            // Hoover Algorithm 1, lines 17 to 31.
            Decrease::Additive if more_in > 0.0 => more_out > self.threshold * more_in,
            Decrease::Additive => -more_out > self.threshold * -more_in,
        };
        let drops_too_much = iteration.rejections as f64 > self.drop_threshold * iteration.received as f64;
        if (gained || unchanged) && !drops_too_much { PoolStep::Grow } else { PoolStep::Shrink }
    }

    /// Keeps the pool where it is while an iteration lasts.
    pub(super) fn hold(&self, pool: &Pool) {
        self.bounds.enforce(pool);
    }

    /// Moves the pool by one step.
    pub(super) fn step(&mut self, pool: &Pool, gain: PoolStep, decrease: Decrease) {
        match (gain, decrease) {
            (PoolStep::Grow, _) => self.add(pool, 1.0),
            (PoolStep::Shrink, Decrease::Multiplicative) => {
                let part = self.beta.min(1.0);
                self.change(pool, |exact| exact * (1.0 - part));
            }
            (PoolStep::Shrink, Decrease::Additive) => self.add(pool, -1.0),
        }
    }

    /// Shrinks the pool by this share of a multiplicative step.
    pub(super) fn shrink_by(&mut self, pool: &Pool, share: f64) {
        let part = self.beta.min(1.0) * share;
        self.change(pool, |exact| exact * (1.0 - part));
    }

    /// Adds this number of increase steps.
    pub(super) fn add(&mut self, pool: &Pool, steps: f64) {
        let step = self.increase(pool);
        self.change(pool, |exact| exact + step * steps);
    }

    /// a: credits that one step adds.
    pub(super) fn increase(&self, pool: &Pool) -> f64 {
        let increase = self.alpha * pool.sessions() as f64;
        if self.additive == IncreaseRounding::AtLeastOne { increase.max(1.0) } else { increase }
    }

    fn change(&mut self, pool: &Pool, to: impl FnOnce(f64) -> f64) {
        // The fraction counts: 2 % of 20 credits is less than one.
        if self.fractional_total as i64 != pool.total() || self.version.is_published() {
            self.fractional_total = pool.total() as f64;
        }
        let max = self.bounds.max_total(pool.sessions()) as f64;
        self.fractional_total = to(self.fractional_total).clamp(self.bounds.min_pool as f64, max);
        pool.set_total(self.fractional_total as i64);
    }
}

/// Pool law that uses the efficiency signal alone.
#[derive(Debug)]
pub(crate) struct EfficiencyLaw {
    samples: Arc<Samples>,
    iterations: IterationTracker,
    efficiency: Efficiency,
    decrease: Decrease,
}

impl EfficiencyLaw {
    pub(crate) fn new(config: &Config, samples: Arc<Samples>) -> Self {
        EfficiencyLaw {
            samples,
            iterations: IterationTracker::new(config),
            efficiency: Efficiency::new(config),
            decrease: config.decrease.unwrap_or(Decrease::Multiplicative), // thesis Algorithm 1
        }
    }
}

impl Law for EfficiencyLaw {
    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        pool.set_reclaims_last_credit(true);
        match self.iterations.tick(pool, signals, &self.samples.totals()) {
            Some(end) => {
                let gain = self.efficiency.judge(&end, self.decrease);
                self.efficiency.step(pool, gain, self.decrease);
            }
            None => self.efficiency.hold(pool),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::iteration::IterationCounts;
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params;
    use leeward_core::params::{Params, RawParam};
    use leeward_core::registry::Environment;
    use leeward_core::units::Nanos;

    fn efficiency(pairs: &[(&str, RawParam)]) -> Efficiency {
        let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = Params::read(params::EFFICIENCY, pairs).unwrap();
        Efficiency::new(&Config::read(PoolSignal::Efficiency, &params, &environment).unwrap())
    }

    fn counted(counted_us: u64, received: u64, responses: u64, rejected: u64) -> IterationEnd {
        let counted = Nanos::from_micros(counted_us);
        IterationEnd::Counted(IterationCounts {
            duration: counted,
            received,
            responses,
            rejections: rejected,
            ..IterationCounts::default()
        })
    }

    /// Verdicts of the thesis and of Hoover on the iteration after 1,000 requests and 800 responses
    /// in 100 µs.
    #[test]
    fn the_efficiency_verdicts_match_the_thesis_and_hoover() {
        use PoolStep::{Grow, Shrink};
        for (next, thesis, hoover, why) in [
            (counted(100, 1_100, 890, 0), Grow, Grow, "more for more"),
            (counted(100, 1_100, 805, 0), Shrink, Shrink, "less than a tenth of what came more"),
            (counted(100, 1_100, 790, 0), Shrink, Shrink, "less for more"),
            (counted(100, 900, 700, 0), Grow, Grow, "less for less: it was worth it"),
            (counted(100, 900, 795, 0), Shrink, Shrink, "nearly as much for less"),
            (counted(100, 900, 810, 0), Shrink, Shrink, "more for less"),
            (counted(100, 1_000, 790, 0), Shrink, Grow, "less for the same: the two algorithms differ"),
            (counted(100, 1_000, 810, 0), Shrink, Shrink, "more for the same"),
            (counted(100, 1_000, 800, 0), Grow, Grow, "nothing has changed: that is no experiment yet"),
            (counted(200, 2_200, 1_780, 0), Grow, Grow, "rates count, not counts"),
            (counted(200, 2_000, 1_600, 0), Grow, Grow, "the same rates in twice the time"),
            (counted(100, 1_100, 890, 300), Shrink, Shrink, "more for more, but a quarter is dropped"),
            (IterationEnd::Idle, Grow, Grow, "nobody wants anything"),
        ] {
            for (decrease, expected) in [(Decrease::Multiplicative, thesis), (Decrease::Additive, hoover)] {
                let mut efficiency = efficiency(&[("drop_threshold", RawParam::Text("20%".into()))]);
                let _ = efficiency.judge(&counted(100, 1_000, 800, 0), decrease);
                assert_eq!(efficiency.judge(&next, decrease), expected, "{why}, {decrease:?}");
            }
        }
    }

    #[test]
    fn a_step_adds_alpha_per_session_and_removes_beta_or_the_same_amount() {
        let moved = |sessions: u32, from: i64, gain, decrease| {
            let mut efficiency = efficiency(&[]);
            let pool = Pool::new(from);
            (0..sessions).for_each(|_| pool.session_opened());
            efficiency.step(&pool, gain, decrease);
            pool.total()
        };
        for (sessions, from, gain, decrease, expected) in [
            (2_000, 500, PoolStep::Grow, Decrease::Multiplicative, 502),
            (100, 500, PoolStep::Grow, Decrease::Multiplicative, 501), // at least one
            (2_000, 500, PoolStep::Shrink, Decrease::Multiplicative, 490),
            (2_000, 500, PoolStep::Shrink, Decrease::Additive, 498),
            (2_000, 10, PoolStep::Shrink, Decrease::Multiplicative, 10), // c_min: the cores
            (1, 64, PoolStep::Grow, Decrease::Multiplicative, 64),       // c_max: what one session can hold
        ] {
            assert_eq!(moved(sessions, from, gain, decrease), expected, "{from} of {sessions} {gain:?} {decrease:?}");
        }
    }

    #[test]
    fn fractions_of_a_credit_are_not_lost() {
        let mut efficiency = efficiency(&[]);
        let pool = Pool::new(20);
        (0..1_000).for_each(|_| pool.session_opened());
        for _ in 0..3 {
            efficiency.step(&pool, PoolStep::Shrink, Decrease::Multiplicative);
            efficiency.step(&pool, PoolStep::Grow, Decrease::Multiplicative);
        }
        assert_eq!(pool.total(), 21, "2 % of 20 is less than the one that a gain adds");
    }
}
