//! The automatic signal: delay and efficiency side by side, and the one that says "overloaded" with evidence decides.
//!
//! Each signal is blind for the other's bottleneck: locks don't show in the queues for CPUs, and at a CPU bottleneck the
//! efficiency signal shrinks a pool that is not too large. What they can't mistake is this:
//! - **CPUs**: the queueing delay reached its target (d_t). The queue is there, whatever else is.
//! - **Something else**: requests were refused a lock, or answered too late for the objective, in an iteration in which the
//!   queueing delay never reached its target.
//!
//! So the delay signal acts at once on each of its findings. In between it lets the pool grow, as alone, unless the last
//! iteration has found something else: then efficiency decides whether the pool grows or shrinks, until an iteration finds
//! CPUs, or nothing. No evidence is kept for longer than one iteration, so nothing can lock in.

use super::efficiency::Efficiency;
use super::iteration::{End, Iterations};
use super::{DelayLaw, Law};
use crate::algorithms::breakwater::config::Config;
use crate::algorithms::breakwater::pool::Pool;
use crate::algorithms::breakwater::samples::Samples;
use crate::server::Signals;
use crate::sync::Arc;

/// Share of requests that must have suffered for it to be evidence: the objective is one of the 99th percentile, so a
/// hundredth may miss it.
const MISSES_ALLOWED: f64 = 0.01;

/// Both signals.
#[derive(Debug)]
pub(crate) struct AutoLaw {
    delay: DelayLaw,
    iterations: Iterations,
    efficiency: Efficiency,
    /// The queueing delay has reached its target in this iteration.
    cpus: bool,
    /// The last iteration had evidence of something else than CPUs.
    something_else: bool,
}

impl AutoLaw {
    pub(crate) fn new(config: &Config, samples: Arc<Samples>) -> Self {
        AutoLaw {
            delay: DelayLaw::new(config),
            iterations: Iterations::new(config, samples),
            efficiency: Efficiency::new(config),
            cpus: false,
            something_else: false,
        }
    }
}

/// Whether requests have suffered from what is no queue for a CPU.
fn suffered(end: &End) -> bool {
    let End::Counted(iteration) = end else { return false };
    let suffered = iteration.lock_drops.saturating_add(iteration.late);
    suffered as f64 > MISSES_ALLOWED * iteration.received as f64
}

impl Law for AutoLaw {
    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        let overloaded = self.delay.says_overloaded(signals.delay());
        self.cpus |= overloaded;
        let mut gain = None;
        if let Some(end) = self.iterations.tick(pool, signals) {
            gain = Some(self.efficiency.judge(&end));
            self.something_else = !self.cpus && suffered(&end);
            self.cpus = false;
        }
        if overloaded || !self.something_else {
            self.delay.step(pool, signals.delay());
        } else {
            match gain {
                Some(gain) => self.efficiency.step(pool, gain),
                None => self.efficiency.hold(pool),
            }
        }
    }
}
