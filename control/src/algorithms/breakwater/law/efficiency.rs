//! Admission by efficiency: the pool grows while more load brings more responses (thesis Algorithm 1; Hoover Algorithm 1).
//! For locks, and any bottleneck that the queues for CPUs don't show.

use super::iteration::{End, Iterations};
use super::{Bounds, Law};
use crate::algorithms::breakwater::config::{Additive, Config, Decrease};
use crate::algorithms::breakwater::pool::Pool;
use crate::algorithms::breakwater::samples::Samples;
use crate::server::Signals;
use crate::sync::Arc;

/// What an iteration says about the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gain {
    /// More load brings enough, or less load costs too much.
    Grow,
    /// It does not.
    Shrink,
}

/// Compares each iteration with the one before, and takes the step that follows.
#[derive(Debug)]
pub(super) struct Efficiency {
    threshold: f64,
    drop_threshold: f64,
    decrease: Decrease,
    additive: Additive,
    alpha: f64,
    beta: f64,
    bounds: Bounds,
    /// Requests and responses per second in the last iteration.
    last: (f64, f64),
    /// The pool with its fraction; whatever else sets the pool has the last word.
    exact: f64,
}

impl Efficiency {
    pub(super) fn new(config: &Config) -> Self {
        Efficiency {
            threshold: config.efficiency_threshold,
            drop_threshold: config.drop_threshold,
            decrease: config.decrease,
            additive: config.additive.unwrap_or(Additive::AtLeastOne), // thesis §2.3.2, eq. 2.3
            alpha: config.alpha,
            beta: config.beta,
            bounds: Bounds::new(config),
            last: (0.0, 0.0),
            exact: config.min_pool.into(),
        }
    }

    /// Judges an iteration by the one before. A lull is no overload. The papers compare counts; here they are divided by the time counted, since
    /// an iteration follows its round trips and may have been extended: with counts, twice the time would look like twice the
    /// load and twice the throughput.
    pub(super) fn judge(&mut self, end: &End) -> Gain {
        let End::Counted(iteration) = end else { return Gain::Grow };
        let seconds = iteration.counted.as_secs_f64();
        let (received, responses) = (iteration.received as f64 / seconds, iteration.responses as f64 / seconds);
        let (more_in, more_out) = (received - self.last.0, responses - self.last.1);
        self.last = (received, responses);
        // 0/0 is not in the papers: where nothing has changed, one credit more is the next experiment. A pool at its least
        // would otherwise stay there for as long as its clients keep their pace.
        let unchanged = more_in == 0.0 && more_out == 0.0;
        let gained = match self.decrease {
            // Thesis Algorithm 1, lines 13 and 14.
            Decrease::Multiplicative => more_in * more_out > 0.0 && more_out.abs() > self.threshold * more_in.abs(),
            // Hoover Algorithm 1, lines 17 to 31.
            Decrease::Additive if more_in > 0.0 => more_out > self.threshold * more_in,
            Decrease::Additive => -more_out > self.threshold * -more_in,
        };
        let drops_too_much = iteration.drops as f64 > self.drop_threshold * iteration.received as f64;
        if (gained || unchanged) && !drops_too_much { Gain::Grow } else { Gain::Shrink }
    }

    /// Keeps the pool where it is while an iteration lasts.
    pub(super) fn hold(&self, pool: &Pool) {
        self.bounds.enforce(pool);
    }

    /// Moves the pool by one step.
    pub(super) fn step(&mut self, pool: &Pool, gain: Gain) {
        let sessions = pool.sessions();
        let step = match self.additive {
            Additive::AtLeastOne => (self.alpha * sessions as f64).max(1.0),
            Additive::Carried => self.alpha * sessions as f64,
        };
        // The fraction counts: of 20 credits, 2 % is less than one.
        if self.exact as i64 != pool.total() {
            self.exact = pool.total() as f64;
        }
        let next = match (gain, self.decrease) {
            (Gain::Grow, _) => self.exact + step,
            (Gain::Shrink, Decrease::Multiplicative) => self.exact * (1.0 - self.beta).max(0.0),
            (Gain::Shrink, Decrease::Additive) => self.exact - step,
        };
        self.exact = next.clamp(self.bounds.min_pool as f64, self.bounds.most(sessions) as f64);
        pool.set_total(self.exact as i64);
    }
}

/// Nothing but efficiency decides.
#[derive(Debug)]
pub(crate) struct EfficiencyLaw {
    iterations: Iterations,
    efficiency: Efficiency,
}

impl EfficiencyLaw {
    pub(crate) fn new(config: &Config, samples: Arc<Samples>) -> Self {
        EfficiencyLaw { iterations: Iterations::new(config, samples), efficiency: Efficiency::new(config) }
    }
}

impl Law for EfficiencyLaw {
    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        match self.iterations.tick(pool, signals) {
            Some(end) => {
                let gain = self.efficiency.judge(&end);
                self.efficiency.step(pool, gain);
            }
            None => self.efficiency.hold(pool),
        }
    }
}
