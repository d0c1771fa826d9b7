//! Additive increase, multiplicative decrease: `AIMDLimit` of Netflix's concurrency-limits
//! (<https://github.com/Netflix/concurrency-limits>), with the defaults of its builder: initially
//! 20, at least 20, at most 200, factor 0.9. The builder's time-out of 5 s is replaced by the
//! objective: with 5 s it would hardly ever decrease.

use crate::policy::LimitPolicy;
use crate::{ConcurrencyLimit, Outcome, Response, Tick};
use leeward_core::units::Nanos;

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "aimd",
    summary: "one more per answer in time, a tenth less per late answer",
    source: "Netflix concurrency-limits, AIMDLimit",
    params: &[],
    build: |_, environment| Box::new(Aimd { limit: 20.0, timeout: environment.objective }),
};

const MIN_LIMIT: f64 = 20.0;
const MAX_LIMIT: f64 = 200.0;
const BACKOFF: f64 = 0.9;

/// The limit.
#[derive(Clone, Debug)]
pub struct Aimd {
    limit: f64,
    timeout: Nanos,
}

impl ConcurrencyLimit for Aimd {
    fn set_objective(&mut self, objective: Nanos) {
        self.timeout = objective;
    }

    fn on_response(&mut self, response: &Response) {
        if response.outcome == Outcome::Failed || response.sojourn() > self.timeout {
            self.limit = (self.limit * BACKOFF).floor();
        } else if f64::from(response.in_flight + 1) * 2.0 >= self.limit {
            self.limit += 1.0;
        }
        self.limit = self.limit.clamp(MIN_LIMIT, MAX_LIMIT);
    }

    fn on_tick(&mut self, _: &Tick) {}

    fn limit(&self) -> u32 {
        self.limit as u32
    }
}
