//! The queue as TCP Vegas estimates it: `VegasLimit` of Netflix's concurrency-limits
//! (<https://github.com/Netflix/concurrency-limits>), with the defaults of its builder: initially
//! 20, at most 1000, smoothing 1, alpha 3 and beta 6 times the decimal logarithm of the limit, and
//! a new shortest time after 30 times the limit in responses, with jitter.

use crate::policy::LimitPolicy;
use crate::{ConcurrencyLimit, Outcome, Response, Tick};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "vegas",
    summary: "the queue by the shortest sojourn, kept between 3 and 6 log10 of the limit",
    source: "Netflix concurrency-limits, VegasLimit",
    params: &[],
    build: |_, environment| {
        Box::new(Vegas { limit: 20.0, shortest: 0.0, probe_count: 0.0, jitter: 0.75, random: environment.seed })
    },
};

const MAX_LIMIT: f64 = 1_000.0;
const PROBE_MULTIPLIER: f64 = 30.0;

/// The limit.
#[derive(Clone, Debug)]
pub struct Vegas {
    limit: f64,
    /// Shortest time since the last probe, ns; 0 before the first response.
    shortest: f64,
    probe_count: f64,
    /// Share of the probe interval after which the next probe comes, 0.5 to 1.
    jitter: f64,
    random: u64,
}

impl ConcurrencyLimit for Vegas {
    fn on_response(&mut self, response: &Response) {
        let time = (response.sojourn().0 as f64).max(1.0);
        self.probe_count += 1.0;
        if self.jitter * PROBE_MULTIPLIER * self.limit <= self.probe_count {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.jitter = 0.5 + (self.random >> 33) as f64 / (1u64 << 32) as f64;
            self.probe_count = 0.0;
            self.shortest = time;
            return;
        }
        if self.shortest == 0.0 || time < self.shortest {
            self.shortest = time;
            return;
        }
        let step = self.limit.log10().floor().max(1.0);
        let queue = (self.limit * (1.0 - self.shortest / time)).ceil();
        let next = if response.outcome == Outcome::Failed {
            self.limit - step
        } else if f64::from(response.in_flight + 1) * 2.0 < self.limit {
            return;
        } else if queue <= step {
            self.limit + 6.0 * step
        } else if queue < 3.0 * step {
            self.limit + step
        } else if queue > 6.0 * step {
            self.limit - step
        } else {
            return;
        };
        self.limit = next.clamp(1.0, MAX_LIMIT);
    }

    fn on_tick(&mut self, _: &Tick) {}

    fn limit(&self) -> u32 {
        self.limit as u32
    }
}
