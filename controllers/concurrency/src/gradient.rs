//! The gradient of Envoy's adaptive concurrency filter, as its documentation describes it
//! (<https://www.envoyproxy.io/docs>, *HTTP filters*, *Adaptive concurrency*).
//!
//! With the values of the documentation's example, and the defaults elsewhere: the 90th percentile,
//! a step every 100 ms, at most 1000, the shortest time measured anew every 60 s with up to 10 % of
//! jitter, from 50 requests at a limit of 3, and a buffer of 25 %. The first of these intervals has
//! a random length, as in a proxy that has run for long.
//!
//! ```text
//! gradient = clamp((minRTT + 25 %) / sampleRTT, 0.5, 2)
//! limit ← gradient · limit + √limit
//! ```
//!
//! After five steps at the least limit the shortest time is measured anew, as in Envoy's source.

use crate::policy::LimitPolicy;
use crate::sojourn::SojournWindow;
use crate::{ConcurrencyLimit, Response, Tick};
use leeward_core::units::{Nanos, Time};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "gradient",
    summary: "the ratio of the shortest 90th percentile of the sojourn to the present one",
    source: "Envoy, adaptive concurrency filter",
    params: &[],
    build: |_, environment| Box::new(Gradient::new(environment.seed)),
};

const MIN_LIMIT: f64 = 3.0;
const MAX_LIMIT: f64 = 1_000.0;
const STEP: Nanos = Nanos::from_millis(100);
const PROBE: Nanos = Nanos::from_secs(60);
const JITTER: f64 = 0.1;
const PROBE_REQUESTS: usize = 50;
const QUANTILE: f64 = 0.9;
const BUFFER: f64 = 0.25;
/// Steps at the least limit after which the shortest time is measured anew.
const STEPS_AT_MIN: u32 = 5;

/// The limit.
#[derive(Clone, Debug)]
pub struct Gradient {
    limit: f64,
    /// Start of the present measurement of the shortest time.
    probing: Option<Time>,
    shortest: Nanos,
    next_step: Time,
    next_probe: Time,
    steps_at_min: u32,
    window: SojournWindow<1024>,
    random: u64,
}

impl Gradient {
    fn new(seed: u64) -> Self {
        Gradient {
            limit: MIN_LIMIT,
            probing: Some(Time::ZERO),
            shortest: Nanos::ZERO,
            next_step: Time::ZERO,
            next_probe: Time::ZERO,
            steps_at_min: 0,
            window: SojournWindow::default(),
            random: seed,
        }
    }

    fn begin_probe(&mut self, now: Time) {
        self.probing = Some(now);
        self.window.clear();
    }

    fn end_probe(&mut self, now: Time) {
        self.shortest = self.window.quantile(QUANTILE);
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (self.random >> 33) as f64 / (1u64 << 31) as f64;
        let interval = if self.next_probe == Time::ZERO { random } else { 1.0 + random * JITTER };
        self.probing = None;
        self.steps_at_min = 0;
        self.next_probe = now + PROBE.scale(interval);
        self.next_step = now + STEP;
        self.window.clear();
    }
}

impl ConcurrencyLimit for Gradient {
    fn on_response(&mut self, response: &Response) {
        match self.probing {
            // An answer to a request from before the probe has met a longer queue.
            Some(since) if response.dispatched < since => {}
            Some(_) => {
                self.window.push(response.sojourn());
                if self.window.len() >= PROBE_REQUESTS {
                    self.end_probe(response.now);
                }
            }
            None => self.window.push(response.sojourn()),
        }
    }

    fn on_tick(&mut self, tick: &Tick) {
        if self.probing.is_some() || tick.now < self.next_step {
            return;
        }
        self.next_step = tick.now + STEP;
        if !self.window.is_empty() {
            let sample = self.window.quantile(QUANTILE).0.max(1) as f64;
            self.window.clear();
            let gradient = (self.shortest.0 as f64 * (1.0 + BUFFER) / sample).clamp(0.5, 2.0);
            self.limit = (gradient * self.limit + self.limit.sqrt()).clamp(MIN_LIMIT, MAX_LIMIT);
            self.steps_at_min = if self.limit <= MIN_LIMIT { self.steps_at_min + 1 } else { 0 };
        }
        if tick.now >= self.next_probe || self.steps_at_min >= STEPS_AT_MIN {
            self.begin_probe(tick.now);
        }
    }

    fn limit(&self) -> u32 {
        if self.probing.is_some() { MIN_LIMIT as u32 } else { self.limit as u32 }
    }
}
