//! DAGOR: a server rejects requests less important than a threshold right after parsing. The
//! threshold follows the queueing delay and is part of every reply, so that clients reject locally
//! what the server would reject (Zhou et al., SoCC'18; its use with µs services: Breakwater §5.1).
//! Does not contain an application's choice of priorities.
//!
//! The `threshold` module has the servers that report a threshold, and the clients that obey it.

use super::published::{AS_PUBLISHED, Version};
use super::threshold::{self, PROBE, SAMPLE, SharedThreshold, threshold_halves};
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING};
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{ControlLoop, Gauges, ServerHalves, Signals};
use leeward_core::sync::Arc;
use leeward_core::units::{Nanos, Priority, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "dagor",
    summary: "drops requests below a priority threshold that follows the queueing delay, at server and client",
    source: "Zhou et al., SoCC'18, as tuned in Breakwater §5.1",
    params: &[
        ParamSpec {
            name: "queue_target",
            kind: ParamKind::ANY_DURATION,
            default: "35 % of the SLO",
            doc: "DAGOR_q: smoothed queueing delay from which the threshold falls",
            tuning_values: &["20us", "30us", "60us", "70us", "80us", "300us", "500us"],
        },
        ParamSpec {
            name: "decrease",
            kind: ParamKind::Number { min: 0.0001, max: 0.99 },
            default: "5%",
            doc: "share of the threshold taken away per update while the delay is over its target",
            tuning_values: &["0.6%", "1.25%", "2.5%", "5%", "10%"],
        },
        ParamSpec {
            name: "increase",
            kind: ParamKind::Number { min: 0.0001, max: 1.0 },
            default: "1%",
            doc: "share of all 128 priorities added per update otherwise",
            tuning_values: &["0.12%", "0.25%", "0.5%", "1%", "2%"],
        },
        ParamSpec {
            name: "update_period",
            kind: ParamKind::ANY_DURATION,
            default: "1ms",
            doc: "the threshold is updated when this long has passed",
            tuning_values: &[],
        },
        ParamSpec {
            name: "update_requests",
            kind: ParamKind::Count { min: 1, max: 1_000_000_000 },
            default: "2000",
            doc: "or when this many requests have arrived, whichever comes first",
            tuning_values: &[],
        },
        SAMPLE,
        PROBE,
        AS_PUBLISHED,
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(threshold::client(params, Version::read(params))),
};

/// The initial threshold of the published code.
const INITIAL: f64 = 32.0;
/// An idle server admits every priority, and every server admits the most important one. The
/// published code bounds the threshold by 1 and 127 and numbers priorities from 0, so that it
/// rejects nothing when idle either.
const BOUNDS: (f64, f64) = (1.0, 128.0);
/// The published bounds, in the published numbering.
const PUBLISHED_BOUNDS: (f64, f64) = (1.0, 127.0);
/// Weights of the old value and of the new one in the smoothed delay.
const SMOOTHING: (f64, f64) = (0.8, 0.2);

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let version = Version::read(params);
    let (base, bounds) = if version.is_published() { (1.0, PUBLISHED_BOUNDS) } else { (0.0, BOUNDS) };
    let level = Arc::new(SharedThreshold::new(base + INITIAL));
    let control = Control {
        version,
        base,
        bounds,
        // Breakwater §5.1 tuned 70 µs at an SLO of 200 µs.
        queue_target: params.duration("queue_target", environment.slo.scale(0.35)),
        decrease: params.number("decrease", 0.05),
        increase: params.number("increase", 0.01) * f64::from(Priority::LOWEST.level()),
        update_period: params.duration("update_period", Nanos::from_millis(1)),
        update_requests: params.count("update_requests", 2_000),
        sample: threshold::sample(params),
        threshold: INITIAL,
        smoothed_ns: 0.0,
        arrivals: 0,
        updated: Time::ZERO,
        level: Arc::clone(&level),
    };
    threshold_halves(environment.cores, &level, Box::new(control))
}

struct Control {
    version: Version,
    /// The priority here that the published threshold numbers 0.
    base: f64,
    bounds: (f64, f64),
    queue_target: Nanos,
    decrease: f64,
    /// Levels added per update.
    increase: f64,
    update_period: Nanos,
    update_requests: u64,
    sample: Nanos,
    threshold: f64,
    smoothed_ns: f64,
    /// Requests since the last update.
    arrivals: u64,
    updated: Time,
    level: Arc<SharedThreshold>,
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.sample
    }

    fn tick(&mut self, signals: &Signals) {
        let smooth = |old: f64, new: f64| SMOOTHING.0 * old + SMOOTHING.1 * new;
        let delay = self.version.measured(signals.delay()).0 as f64;
        self.smoothed_ns = match self.version {
            Version::Extended => smooth(self.smoothed_ns, delay),
            Version::Published => smooth(self.smoothed_ns / 1e3, delay / 1e3).trunc() * 1e3,
        };
        if self.version.is_published() && self.arrivals + signals.arrivals == 0 {
            return; // the published code updates at the arrival of a request
        }
        self.arrivals += signals.arrivals;
        if signals.now.since(self.updated) < self.update_period && self.arrivals < self.update_requests {
            return;
        }
        self.updated = signals.now;
        self.arrivals = 0;
        if self.smoothed_ns >= self.queue_target.0 as f64 {
            self.threshold *= 1.0 - self.decrease;
        } else {
            self.threshold += self.increase;
        }
        self.threshold = self.threshold.clamp(self.bounds.0, self.bounds.1);
        self.level.store(self.base + self.threshold);
    }

    fn gauges(&self) -> Gauges {
        Gauges { priority_threshold: Some(self.base + self.threshold), ..Gauges::default() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::threshold::Client;
    use super::*;
    use leeward_core::client::{ClientHalf, ClientVerdict, Reply, Submission};
    use leeward_core::server::{Arrival, CoreId, Feedback, Outcome, RejectReason, Session, SessionSlot, Verdict};

    fn server() -> ServerHalves {
        let environment = Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200));
        halves(&Params::default(), &environment)
    }

    fn client() -> Client {
        Client::new(Nanos::from_millis(100), Version::Extended)
    }

    fn threshold(server: &ServerHalves) -> f64 {
        server.control.gauges().priority_threshold.unwrap()
    }

    /// Ticks every 10 µs for `ms` milliseconds at this queueing delay; returns the time after them.
    fn run(server: &mut ServerHalves, from: Time, ms: u64, delay_us: u64, arrivals: u64) -> Time {
        let mut now = from;
        for _ in 0..ms * 100 {
            now += Nanos::from_micros(10);
            let signals = Signals { packet_delay: Nanos::from_micros(delay_us), arrivals, ..Signals::idle(now) };
            server.control.tick(&signals);
        }
        now
    }

    fn verdict(server: &mut ServerHalves, level: u8) -> Verdict {
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        let arrival = Arrival::new(Time::ZERO).with_priority(Priority::new(level));
        session.request(server.cores[0].as_mut(), &arrival).0
    }

    #[test]
    fn the_threshold_steps_once_per_period() {
        let mut server = server();
        let now = run(&mut server, Time::ZERO, 1, 0, 0);
        assert!((threshold(&server) - 33.28).abs() < 1e-9); // + 1 % of 128
        run(&mut server, now, 1, 200, 0);
        assert!((threshold(&server) - 33.28 * 0.95).abs() < 1e-9);
    }

    #[test]
    fn many_arrivals_end_a_period_early() {
        let mut server = server();
        run(&mut server, Time::ZERO, 1, 0, 200); // 2,000 requests every ten ticks
        assert!((threshold(&server) - (32.0 + 10.0 * 1.28)).abs() < 1e-9);
    }

    #[test]
    fn requests_above_the_threshold_are_rejected() {
        let mut server = server();
        assert_eq!(verdict(&mut server, 32), Verdict::Admit);
        assert_eq!(verdict(&mut server, 33), Verdict::Reject(RejectReason::Priority));
    }

    #[test]
    fn recovers_after_heavy_overload() {
        let mut server = server();
        let now = run(&mut server, Time::ZERO, 1_000, 100_000, 100);
        assert_eq!(threshold(&server), 1.0);
        assert_eq!(verdict(&mut server, 1), Verdict::Admit);
        assert_eq!(verdict(&mut server, 2), Verdict::Reject(RejectReason::Priority));
        run(&mut server, now, 200, 0, 0);
        assert_eq!(threshold(&server), 128.0);
        assert_eq!(verdict(&mut server, 128), Verdict::Admit, "an idle server drops nothing");
    }

    #[test]
    fn a_client_applies_the_servers_threshold_and_relearns_it() {
        let mut client = client();
        let submit = |client: &mut Client, ms: u64, level: u8| {
            client.submit(&Submission {
                now: Time::ZERO + Nanos::from_millis(ms),
                priority: Priority::new(level),
                random: 0,
            })
        };
        let reply = |ms: u64, level: u8| Reply {
            now: Time::ZERO + Nanos::from_millis(ms),
            outcome: Outcome::Rejected,
            round_trip: Nanos::from_micros(20),
            feedback: Feedback { threshold: Priority::new(level), ..Feedback::NONE },
        };
        assert_eq!(submit(&mut client, 0, 128), ClientVerdict::Accept);
        client.reply(&reply(1, 1));
        assert_eq!(submit(&mut client, 2, 1), ClientVerdict::Accept);
        assert_eq!(submit(&mut client, 2, 2), ClientVerdict::Reject);
        // A client without a request of the highest priority is not locked out for ever: one
        // request probes the server.
        assert_eq!(submit(&mut client, 100, 64), ClientVerdict::Reject);
        assert_eq!(submit(&mut client, 101, 64), ClientVerdict::Accept);
        client.on_sent(Time::ZERO + Nanos::from_millis(101));
        assert_eq!(submit(&mut client, 101, 64), ClientVerdict::Reject);
        client.reply(&reply(102, 127));
        assert_eq!(submit(&mut client, 102, 64), ClientVerdict::Accept);
    }
}
