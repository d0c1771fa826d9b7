//! TopFull: a limit on the rate at which the entry of a service graph admits requests. The total
//! latency of its requests reflects the downstream services (Park et al., SIGCOMM'24). Does not
//! contain control at the downstream services, which run without it.
//!
//! The paper's rate controller is a learned policy, trained on rates and latencies of other
//! services, with latencies thousands of times as long. So this controller uses the authors'
//! published alternative: 5 % down when a high percentile of the latency is over the objective, 1 %
//! up otherwise, per second and API. One API is one cluster, so the paper's rules on clusters of
//! overloaded services do not apply. Chosen here:
//! - A late percentile also counts as overload. The published detector asks for 80 % of a service's
//!   CPU, which a server's controller does not see.
//! - A limit starts at the last admitted rate, as published, and ends when it is a tenth above the
//!   demand.
//! - The interval is a parameter, since a second is thousands of request lifetimes here.

use leeward_core::client::ClientParts;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::none::SendAll;
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Departure, Feedback, Gauges, Outcome, RejectReason, ServerHalves, Session,
    Signals, Verdict,
};
use leeward_core::sync::{Arc, AtomicI64, AtomicU64, CachePadded, Ordering};
use leeward_core::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "topfull",
    summary: "limits the rate of requests at the entry by their latency through all services",
    source: "Park et al., SIGCOMM'24, with its MIMD rule; choices in the file",
    params: &[
        ParamSpec {
            name: "target",
            kind: ParamKind::ANY_DURATION,
            default: "the SLO less the round trip",
            doc: "time in the server, its calls included, from which a request is late",
            tuning_values: &["200us", "400us", "600us", "800us"],
        },
        ParamSpec {
            name: "late",
            kind: ParamKind::Number { min: 0.0001, max: 0.9999 },
            default: "5%",
            doc: "share of late or failed requests from which the rate falls",
            tuning_values: &["1%", "5%"],
        },
        ParamSpec {
            name: "interval",
            kind: ParamKind::ANY_DURATION,
            default: "1s",
            doc: "how often the rate is changed",
            tuning_values: &["1ms", "10ms", "100ms", "1s"],
        },
        ParamSpec {
            name: "decrease",
            kind: ParamKind::Number { min: 0.0001, max: 0.99 },
            default: "5%",
            doc: "share of the rate taken away when too many are late",
            tuning_values: &["2%", "5%", "10%"],
        },
        ParamSpec {
            name: "increase",
            kind: ParamKind::Number { min: 0.0001, max: 10.0 },
            default: "1%",
            doc: "share of the rate added otherwise",
            tuning_values: &["0.5%", "1%", "2%"],
        },
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

/// Interval between fillings of the bucket.
const PERIOD: Nanos = Nanos::from_micros(100);
/// Bucket size, as time at the current rate.
const BURST: Nanos = Nanos::from_millis(1);
/// Requests per second that are always admitted, so that their latency is measured (published: 10).
const MIN_RATE: f64 = 10.0;
/// Limit over demand at which the limit is lifted.
const LIFT_RATIO: f64 = 1.1;

/// Counters that all cores share.
struct Shared {
    /// Requests that may be admitted; not used without a limit.
    tokens: CachePadded<AtomicI64>,
    /// 0 or 1.
    limited: CachePadded<AtomicU64>,
    arrived: CachePadded<AtomicU64>,
    answered: CachePadded<AtomicU64>,
    late: CachePadded<AtomicU64>,
}

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let shared = Arc::new(Shared {
        tokens: CachePadded(AtomicI64::new(0)),
        limited: CachePadded(AtomicU64::new(0)),
        arrived: CachePadded(AtomicU64::new(0)),
        answered: CachePadded(AtomicU64::new(0)),
        late: CachePadded(AtomicU64::new(0)),
    });
    let target = params.duration("target", environment.slo.saturating_sub(environment.rtt));
    let core = || Box::new(Core { target, shared: Arc::clone(&shared) }) as Box<dyn Admission>;
    ServerHalves {
        cores: (0..environment.cores).map(|_| core()).collect(),
        control: Box::new(Control {
            late_percentile: params.number("late", 0.05),
            interval: params.duration("interval", Nanos::from_secs(1)),
            decrease: params.number("decrease", 0.05),
            increase: params.number("increase", 0.01),
            rate: None,
            carry: 0.0,
            filled: Time::ZERO,
            updated: Time::ZERO,
            shared,
        }),
    }
}

struct Core {
    target: Nanos,
    shared: Arc<Shared>,
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
        self.shared.arrived.0.fetch_add(1, Ordering::Relaxed);
        if self.shared.limited.0.load(Ordering::Relaxed) == 0 {
            return Verdict::Admit;
        }
        // A negative count means that other cores took the last token at the same time. Those
        // requests are rejected as well, and the next filling compensates.
        if self.shared.tokens.0.fetch_sub(1, Ordering::Relaxed) > 0 {
            Verdict::Admit
        } else {
            self.shared.tokens.0.fetch_add(1, Ordering::Relaxed);
            Verdict::Reject(RejectReason::Concurrency)
        }
    }

    fn reply(&mut self, _: &mut Session, event: &Departure) -> Feedback {
        // A rejection without time in the server is the limit's own, and says nothing about the
        // downstream services.
        let counts = event.outcome == Outcome::Completed || event.sojourn >= self.target;
        if counts {
            self.shared.answered.0.fetch_add(1, Ordering::Relaxed);
            let late = event.outcome == Outcome::Rejected || event.sojourn > self.target;
            self.shared.late.0.fetch_add(late.into(), Ordering::Relaxed);
        }
        Feedback::NONE
    }
}

struct Control {
    late_percentile: f64,
    interval: Nanos,
    decrease: f64,
    increase: f64,
    /// Requests per second; `None` without a limit.
    rate: Option<f64>,
    carry: f64,
    filled: Time,
    updated: Time,
    shared: Arc<Shared>,
}

impl Control {
    fn update(&mut self, span: Nanos) {
        let taken = |counter: &CachePadded<AtomicU64>| counter.0.swap(0, Ordering::Relaxed) as f64;
        let (arrived, answered, late) =
            (taken(&self.shared.arrived), taken(&self.shared.answered), taken(&self.shared.late));
        let seconds = span.as_secs_f64().max(1e-9);
        let (offered, served) = (arrived / seconds, answered / seconds);
        let is_late = late > self.late_percentile * answered;
        self.rate = match self.rate {
            None if is_late => Some(served.max(MIN_RATE)),
            None => None,
            Some(rate) if is_late => Some((rate * (1.0 - self.decrease)).max(MIN_RATE)),
            Some(rate) if rate >= LIFT_RATIO * offered => None,
            Some(rate) => Some(rate * (1.0 + self.increase)),
        };
        self.shared.limited.0.store(self.rate.is_some().into(), Ordering::Relaxed);
    }

    fn fill(&mut self, span: Nanos) {
        let Some(rate) = self.rate else { return };
        self.carry += rate * span.as_secs_f64();
        let whole = self.carry as i64;
        self.carry -= whole as f64;
        let max = (rate * BURST.as_secs_f64()).max(1.0) as i64;
        let left = self.shared.tokens.0.load(Ordering::Relaxed);
        self.shared.tokens.0.fetch_add(whole.min(max - left), Ordering::Relaxed);
    }
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        PERIOD.min(self.interval)
    }

    fn reaction(&self) -> Nanos {
        self.interval
    }

    fn tick(&mut self, signals: &Signals) {
        let span = signals.now.since(self.updated);
        if span >= self.interval {
            self.update(span);
            self.updated = signals.now;
        }
        self.fill(signals.now.since(self.filled));
        self.filled = signals.now;
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::server::{CoreId, SessionSlot};
    use leeward_core::units::CreditId;

    /// Returns the admitted requests, of `each` per millisecond with this sojourn time.
    fn admitted(server: &mut ServerHalves, ms: std::ops::Range<u64>, each: u64, sojourn_us: u64) -> u64 {
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        let mut count = 0;
        for step in ms.start * 10..ms.end * 10 {
            let now = Time(step * 100_000);
            server.control.tick(&Signals::idle(now));
            for _ in 0..each / 10 {
                let (verdict, pending) = session.request(server.cores[0].as_mut(), &Arrival::new(now));
                let is_admitted = verdict == Verdict::Admit;
                count += u64::from(is_admitted);
                let outcome = if is_admitted { Outcome::Completed } else { Outcome::Rejected };
                let sojourn = if is_admitted { Nanos::from_micros(sojourn_us) } else { Nanos::ZERO };
                let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
                let _ = session.reply(server.cores[0].as_mut(), pending, &departure);
            }
        }
        count
    }

    #[test]
    fn the_rate_falls_while_requests_are_late_and_recovers() {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = ALGORITHM.params(&[("interval", RawParam::Text("10ms".into()))]).unwrap();
        let mut server = halves(&params, &environment);
        assert_eq!(admitted(&mut server, 1..100, 100, 50), 9_900);
        let late = admitted(&mut server, 100..1_000, 100, 500);
        assert!(late < 9_900 * 3, "{late}");
        admitted(&mut server, 1_000..7_000, 100, 50);
        assert_eq!(admitted(&mut server, 7_000..7_100, 100, 50), 10_000, "1 % per interval");
    }
}
