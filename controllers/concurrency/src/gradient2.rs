//! The gradient between a long and a short average: `Gradient2Limit` of Netflix's
//! concurrency-limits (<https://github.com/Netflix/concurrency-limits>), with the defaults of its
//! builder: initially 20, at least 20, at most 200, tolerance 1.5, smoothing 0.2, a queue of 4, a
//! long window of 600 samples that begins with a plain mean of 10.

use crate::policy::LimitPolicy;
use crate::{ConcurrencyLimit, Response, Tick};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "gradient2",
    summary: "the ratio of a long average of the sojourn to the present one",
    source: "Netflix concurrency-limits, Gradient2Limit",
    params: &[],
    build: |_, _| Box::new(Gradient2 { limit: 20.0, long: 0.0, sum: 0.0, count: 0 }),
};

const MIN_LIMIT: f64 = 20.0;
const MAX_LIMIT: f64 = 200.0;
const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
const QUEUE: f64 = 4.0;
/// Weight of a sample in the exponential average of 600 samples.
const LONG_WEIGHT: f64 = 2.0 / 601.0;
/// Samples of the plain mean with which the long average begins.
const WARM_UP: u32 = 10;

/// The limit.
#[derive(Clone, Debug)]
pub struct Gradient2 {
    limit: f64,
    /// Long average, ns.
    long: f64,
    sum: f64,
    count: u32,
}

impl ConcurrencyLimit for Gradient2 {
    fn on_response(&mut self, response: &Response) {
        let short = (response.sojourn().0 as f64).max(1.0);
        if self.count < WARM_UP {
            self.count += 1;
            self.sum += short;
            self.long = self.sum / f64::from(self.count);
        } else {
            self.long += LONG_WEIGHT * (short - self.long);
        }
        // Recovers from a long average that an overload has raised.
        if self.long / short > 2.0 {
            self.long *= 0.95;
        }
        if f64::from(response.in_flight + 1) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * self.long / short).clamp(0.5, 1.0);
        let next = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + next * SMOOTHING).clamp(MIN_LIMIT, MAX_LIMIT);
    }

    fn on_tick(&mut self, _: &Tick) {}

    fn limit(&self) -> u32 {
        self.limit as u32
    }
}
