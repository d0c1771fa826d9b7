//! Rajomon: every server has a price that follows its queueing delay, and requests carry tokens. A
//! request with fewer tokens than the price is rejected, at the server or already at its client. A
//! server reports the larger of its own and its downstream servers' prices to its clients, so that
//! overload downstream acts at the entry (Xing et al., NSDI'25). Does not contain the distribution
//! of tokens.
//!
//! From the paper and its published code: the price moves in proportion to the longest queueing
//! delay of an interval less a threshold; successive increases decay; a path's price is the maximum
//! along it; requests carry the same tokens on all hops. Chosen here, where neither specifies it or
//! a plant has no such thing:
//! - Tokens are evenly drawn (the published strategy `uniform`), and a priority stands for them:
//!   128 less its level. So a price is a threshold of priorities on the wire.
//! - Tokens are always available. A client's refill rate bounds its own demand, not the server's,
//!   and is left out.
//! - The decay is 0.95. With the published 0.8 the increases of one overload sum up to a few steps:
//!   where these reject too little, the price stays too low for as long as the overload lasts.
//! - The step is given per threshold of excess delay, not per 10 ms: the published services take
//!   milliseconds.
//! - The clients inside servers reject as the end users' clients do. The published ones send, and
//!   the upstream server has judged by the same price.
//! - A client that has been quiet for `probe` sends one request, as DAGOR's does, to learn of a
//!   lower price.

use super::published::Version;
use super::threshold::{self, PROBE, SAMPLE, SharedThreshold, threshold_halves};
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING};
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{ControlLoop, Downstream, Gauges, ServerHalves, Signals};
use leeward_core::sync::Arc;
use leeward_core::units::{Nanos, Priority, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "rajomon",
    summary: "drops requests with fewer tokens than a price that follows the queueing delay, here and behind",
    source: "Xing et al., NSDI'25; choices in the file",
    params: &[
        ParamSpec {
            name: "threshold",
            kind: ParamKind::ANY_DURATION,
            default: "20 % of the SLO",
            doc: "longest queueing delay of an interval from which the price rises",
            tuning_values: &["10us", "20us", "40us", "80us"],
        },
        ParamSpec {
            name: "step",
            kind: ParamKind::Number { min: 0.001, max: 128.0 },
            default: "1",
            doc: "tokens by which the price moves per threshold of excess, up or down",
            tuning_values: &["0.3", "1", "3", "10"],
        },
        ParamSpec {
            name: "decay",
            kind: ParamKind::Number { min: 0.01, max: 1.0 },
            default: "0.95",
            doc: "factor of an increase per increase before it in a row, from the third on (published: 0.8)",
            tuning_values: &["0.8", "0.95", "1"],
        },
        ParamSpec {
            name: "update_period",
            kind: ParamKind::ANY_DURATION,
            default: "1ms",
            doc: "how often the price is updated (the published services: 10 ms)",
            tuning_values: &["200us", "1ms", "5ms"],
        },
        SAMPLE,
        PROBE,
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(threshold::client(params, Version::Extended)),
};

/// The highest price: the most important request is always admitted, so that clients learn of a
/// lower price.
const MAX_PRICE: f64 = 127.0;
/// Successive increases before decay begins.
const UNDECAYED_INCREASES: i32 = 2;

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let level = Arc::new(SharedThreshold::new(128.0));
    let control = Control {
        threshold: params.duration("threshold", environment.slo.scale(0.2)).max(Nanos(1)),
        step: params.number("step", 1.0),
        decay: params.number("decay", 0.95),
        update_period: params.duration("update_period", Nanos::from_millis(1)),
        sample: threshold::sample(params),
        price: 0.0,
        downstream_price: 0.0,
        max_delay: Nanos::ZERO,
        consecutive_increases: 0,
        updated: Time::ZERO,
        level: Arc::clone(&level),
    };
    threshold_halves(environment.cores, &level, Box::new(control))
}

struct Control {
    threshold: Nanos,
    step: f64,
    decay: f64,
    update_period: Nanos,
    sample: Nanos,
    /// Own price, in tokens.
    price: f64,
    /// The largest price of the downstream servers.
    downstream_price: f64,
    /// Longest queueing delay since the last update.
    max_delay: Nanos,
    /// Successive increases.
    consecutive_increases: i32,
    updated: Time,
    level: Arc<SharedThreshold>,
}

impl Control {
    fn level(&self) -> f64 {
        128.0 - self.price.max(self.downstream_price)
    }
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.sample
    }

    fn tick(&mut self, signals: &Signals) {
        self.max_delay = self.max_delay.max(signals.delay());
        if signals.now.since(self.updated) < self.update_period {
            return;
        }
        self.updated = signals.now;
        let longest = std::mem::take(&mut self.max_delay);
        let mut change = self.step * (longest.0 as f64 / self.threshold.0 as f64 - 1.0);
        if change > 0.0 {
            if self.consecutive_increases >= UNDECAYED_INCREASES {
                change *= self.decay.powi(self.consecutive_increases);
            }
            self.consecutive_increases = self.consecutive_increases.saturating_add(1);
        } else {
            self.consecutive_increases = 0;
        }
        self.price = (self.price + change).clamp(0.0, MAX_PRICE);
        self.level.store(self.level());
    }

    fn set_downstream(&mut self, event: &Downstream) {
        self.downstream_price = f64::from(Priority::LOWEST.level() - event.threshold.level());
        self.level.store(self.level());
    }

    fn gauges(&self) -> Gauges {
        Gauges { priority_threshold: Some(self.level()), ..Gauges::default() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn server() -> ServerHalves {
        halves(&Params::default(), &Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200)))
    }

    fn run(server: &mut ServerHalves, from_ms: u64, ms: u64, delay_us: u64) -> f64 {
        for step in 0..ms * 100 {
            let now = Time((from_ms * 100 + step) * 10_000);
            server.control.tick(&Signals { run_delay: Nanos::from_micros(delay_us), ..Signals::idle(now) });
        }
        server.control.gauges().priority_threshold.unwrap()
    }

    #[test]
    fn the_price_follows_the_excess_and_falls_again() {
        let mut server = server();
        // 80 us is an excess of one threshold of 40 us: one token per update, and less from the
        // third update on.
        let threshold = run(&mut server, 1, 4, 80);
        assert!((128.0 - threshold - (2.0 + 0.95f64.powi(2) + 0.95f64.powi(3))).abs() < 1e-9, "{threshold}");
        assert_eq!(run(&mut server, 5, 200, 0), 128.0);
    }

    #[test]
    fn the_higher_of_own_and_downstream_price_is_sent() {
        let mut server = server();
        server.control.set_downstream(&Downstream::UNLIMITED.with_threshold(Priority::new(28)));
        assert_eq!(server.control.gauges().priority_threshold, Some(28.0));
        assert_eq!(run(&mut server, 1, 3, 80), 28.0);
        server.control.set_downstream(&Downstream::UNLIMITED);
        assert!(server.control.gauges().priority_threshold.unwrap() > 120.0);
    }
}
