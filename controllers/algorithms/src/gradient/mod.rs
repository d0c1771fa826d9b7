//! A concurrency limit at the server, moved by the ratio of the shortest to the current time in the
//! server (the gradient limiter of Netflix's concurrency-limits). Clients send at will.
//!
//! - `in_flight`: count and limit of the requests in the server, shared by all cores.
//! - `law`: the rule for the limit, and the measurement of the shortest time.
//! - this file: parameters, the fast half and the slow half.

mod in_flight;
mod law;
#[cfg(all(test, loom))]
mod model;

use self::in_flight::InFlight;
use self::law::{Law, Sample};
use leeward_core::client::ClientParts;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::none::SendAll;
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Departure, Feedback, Gauges, Outcome, Registration, RejectReason, ServerHalves,
    Session, SessionState, Signals, Verdict,
};
use leeward_core::sync::{Arc, AtomicU64, CachePadded, Ordering};
use leeward_core::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "gradient",
    summary: "server-side concurrency limit by the ratio of shortest to current time in the server",
    source: "Netflix concurrency-limits, gradient limit",
    params: &[
        ParamSpec {
            name: "tolerance",
            kind: ParamKind::Number { min: 1.0, max: 1000.0 },
            default: "2",
            doc: "how many times its shortest the time in the server may be before the limit shrinks",
            tuning_values: &["1.5", "2", "4", "8"],
        },
        ParamSpec {
            name: "smoothing",
            kind: ParamKind::Number { min: 0.001, max: 1.0 },
            default: "20%",
            doc: "weight of a new limit against the old one",
            tuning_values: &["10%", "20%", "50%"],
        },
        ParamSpec {
            name: "period",
            kind: ParamKind::ANY_DURATION,
            default: "10 network round trips, at least 10us",
            doc: "how often the limit is adapted",
            tuning_values: &[],
        },
        ParamSpec {
            name: "probe",
            kind: ParamKind::ANY_DURATION,
            default: "1s",
            doc: "how often the shortest time is measured anew, with the limit at its minimum for a moment",
            tuning_values: &["200ms", "1s", "5s"],
        },
        ParamSpec {
            name: "min_limit",
            kind: ParamKind::Count { min: 1, max: 1_000_000 },
            default: "the number of cores",
            doc: "requests that may always be in the server",
            tuning_values: &[],
        },
        ParamSpec {
            name: "max_limit",
            kind: ParamKind::Count { min: 1, max: 1_000_000 },
            default: "100 per core",
            doc: "requests that may ever be in the server",
            tuning_values: &[],
        },
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: halves,
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

fn halves(params: &Params, environment: &Environment) -> Result<ServerHalves, ParamError> {
    let min_limit = params.count("min_limit", environment.cores.into());
    let max_limit = params.count("max_limit", (u64::from(environment.cores) * 100).max(min_limit));
    if min_limit > max_limit {
        return Err(ParamError::Conflict(format!(
            "`min_limit` ({min_limit}) must not be above `max_limit` ({max_limit})"
        )));
    }
    let law = Law::new(law::Config {
        tolerance: params.number("tolerance", 2.0),
        smoothing: params.number("smoothing", 0.2),
        probe: params.duration("probe", Nanos::from_secs(1)),
        min_limit: min_limit as f64,
        max_limit: max_limit as f64,
    });
    let in_flight = Arc::new(InFlight::new(law.limit() as i64));
    let times: Vec<Arc<Times>> = (0..environment.cores).map(|_| Arc::default()).collect();
    let cores = times.iter().map(|times| {
        Box::new(Core { in_flight: Arc::clone(&in_flight), times: Arc::clone(times) }) as Box<dyn Admission>
    });
    Ok(ServerHalves {
        cores: cores.collect(),
        control: Box::new(Control {
            period: params.duration("period", Nanos(environment.rtt.0.saturating_mul(10).max(10_000))),
            law,
            in_flight,
            times,
            sample: Sample::default(),
        }),
    })
}

/// Times in the server that one core recorded since the slow half last took them. Sum and count are
/// two words. A completion between the two reads is counted in one period and summed in the next,
/// which does not matter to a mean over hundreds.
#[derive(Debug, Default)]
struct Times {
    sum_ns: CachePadded<AtomicU64>,
    count: AtomicU64,
}

/// The fast half.
struct Core {
    in_flight: Arc<InFlight>,
    times: Arc<Times>,
}

/// Unanswered requests of one session. Their sum is [`Session::pending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PendingCounts {
    /// Admitted requests, counted in [`InFlight`].
    admitted: u64,
    /// Rejected requests whose rejection has not left.
    rejected: u64,
}

impl SessionState for PendingCounts {
    fn from_words([admitted, rejected]: [u64; 2]) -> Self {
        PendingCounts { admitted, rejected }
    }

    fn into_words(self) -> [u64; 2] {
        [self.admitted, self.rejected]
    }
}

impl Admission for Core {
    fn open(&mut self, session: &mut Session, _: &Registration) {
        session.set_state(PendingCounts::default());
    }

    fn request(&mut self, session: &mut Session, _: &Arrival) -> Verdict {
        session.update_state(|counts: &mut PendingCounts| {
            if self.in_flight.try_enter() {
                counts.admitted += 1;
                Verdict::Admit
            } else {
                counts.rejected += 1;
                Verdict::Reject(RejectReason::Concurrency)
            }
        })
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        // A rejection is either this controller's, or comes from inside the server (a full lock
        // queue) after admission and returns a slot. The counts do not depend on which rejection is
        // which.
        let mut counts: PendingCounts = session.state();
        if event.outcome == Outcome::Rejected && counts.rejected > 0 {
            counts.rejected -= 1;
            session.set_state(counts);
            return Feedback::NONE;
        }
        if counts.admitted > 0 {
            counts.admitted -= 1;
            session.set_state(counts);
            self.in_flight.leave(1);
        }
        if event.outcome == Outcome::Completed {
            self.times.sum_ns.0.fetch_add(event.sojourn.0, Ordering::Relaxed);
            self.times.count.fetch_add(1, Ordering::Relaxed);
        }
        Feedback::NONE
    }

    fn close(&mut self, session: &mut Session, _: Time) {
        // The session's requests in the server will get no reply, so their slots are returned here.
        // While that work still runs, slightly more requests are in the server than the limit.
        // Otherwise each lost connection would reduce the limit for ever.
        self.in_flight.leave(session.state::<PendingCounts>().admitted as i64);
        session.set_state(PendingCounts::default());
    }
}

/// The slow half.
struct Control {
    period: Nanos,
    law: Law,
    in_flight: Arc<InFlight>,
    times: Vec<Arc<Times>>,
    /// Times since the law's last step.
    sample: Sample,
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        for times in &self.times {
            self.sample.sum_ns += times.sum_ns.0.swap(0, Ordering::Relaxed);
            self.sample.count += times.count.swap(0, Ordering::Relaxed);
        }
        self.law.step(signals.now, &mut self.sample, self.in_flight.count() as f64);
        self.in_flight.set_limit(self.law.limit() as i64);
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            concurrency_limit: Some(self.law.limit()),
            in_flight: Some(self.in_flight.count()),
            ..Gauges::default()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::server::{CoreId, PendingRequest, SessionSlot};

    fn server(pairs: &[(&str, RawParam)]) -> ServerHalves {
        let environment = Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200));
        halves(&Params::read(ALGORITHM.params, pairs).unwrap(), &environment).unwrap()
    }

    fn request(server: &mut ServerHalves, session: &mut Session) -> (Verdict, PendingRequest) {
        session.request(server.cores[0].as_mut(), &Arrival::new(Time::ZERO))
    }

    fn reply(
        server: &mut ServerHalves,
        session: &mut Session,
        pending: PendingRequest,
        outcome: Outcome,
        sojourn_us: u64,
    ) {
        let departure = Departure {
            now: Time::ZERO,
            outcome,
            sojourn: Nanos::from_micros(sojourn_us),
            credit: leeward_core::units::CreditId::NONE,
        };
        let _ = session.reply(server.cores[0].as_mut(), pending, &departure);
    }

    fn in_flight(server: &ServerHalves) -> i64 {
        server.control.gauges().in_flight.unwrap()
    }

    #[test]
    fn each_request_frees_its_slot_once() {
        let mut server = server(&[("min_limit", RawParam::Integer(2)), ("max_limit", RawParam::Integer(2))]);
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        server.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        let requests = [0, 1, 2].map(|_| request(&mut server, &mut session));
        let verdicts = requests.each_ref().map(|(verdict, _)| *verdict);
        assert_eq!(verdicts, [Verdict::Admit, Verdict::Admit, Verdict::Reject(RejectReason::Concurrency)]);
        let [(_, admitted), (_, _still_in), (_, rejected)] = requests;
        reply(&mut server, &mut session, rejected, Outcome::Rejected, 1);
        assert_eq!(in_flight(&server), 2);
        reply(&mut server, &mut session, admitted, Outcome::Rejected, 1); // rejected inside the server
        assert_eq!(in_flight(&server), 1);
        server.cores[0].close(&mut session, Time::ZERO);
        assert_eq!(in_flight(&server), 0);
    }

    /// A session and its pending requests.
    struct Peer {
        session: Session,
        pending: Vec<PendingRequest>,
    }

    impl Peer {
        fn new() -> Self {
            Peer { session: Session::new(SessionSlot(0), CoreId(0)), pending: Vec::new() }
        }
    }

    fn offer(server: &mut ServerHalves, peer: &mut Peer) -> Verdict {
        let (verdict, pending) = request(server, &mut peer.session);
        peer.pending.push(pending);
        verdict
    }

    fn answer(server: &mut ServerHalves, peer: &mut Peer, outcome: Outcome, sojourn_us: u64) {
        let pending = peer.pending.pop().expect("a request is unanswered");
        reply(server, &mut peer.session, pending, outcome, sojourn_us);
    }

    /// Runs a server with two cores and 10 µs per request, in rounds of 100 µs. The time in the
    /// server follows from the number of requests there (Little). Offers requests to keep `offered`
    /// in the server; returns the limit at the end.
    fn run(server: &mut ServerHalves, peer: &mut Peer, now: &mut Time, rounds: u64, offered: usize) -> f64 {
        const SERVICE_US: u64 = 10;
        for _ in 0..rounds {
            while in_flight(server) < offered as i64 && offer(server, peer) == Verdict::Admit {}
            if peer.session.state::<PendingCounts>().rejected > 0 {
                answer(server, peer, Outcome::Rejected, 0);
            }
            let sojourn = (in_flight(server) as u64 * SERVICE_US / 2).max(SERVICE_US);
            for _ in 0..(100 * in_flight(server) as u64 / sojourn) {
                answer(server, peer, Outcome::Completed, sojourn);
                let _ = offer(server, peer);
            }
            *now += Nanos::from_micros(100);
            server.control.tick(&Signals::idle(*now));
        }
        server.control.gauges().concurrency_limit.unwrap()
    }

    #[test]
    fn recovers_after_heavy_overload() {
        let mut server = server(&[("probe", RawParam::Text("100ms".into()))]);
        let mut peer = Peer::new();
        let mut now = Time::ZERO;
        let before = run(&mut server, &mut peer, &mut now, 2_000, 6);
        // Ten seconds of far more than the limit: the limit settles where the time in the server is
        // a few times its shortest, and does not creep up.
        let overloaded = run(&mut server, &mut peer, &mut now, 100_000, 10_000);
        assert!((2.0..20.0).contains(&overloaded), "limit {overloaded} under overload");
        // All clients crash in the middle, then the load of before returns.
        server.cores[0].close(&mut peer.session, now);
        assert_eq!(in_flight(&server), 0);
        let mut peer = Peer::new();
        let after = run(&mut server, &mut peer, &mut now, 5_000, 6);
        assert!(after >= 6.0, "limit {after} after, {before} before");
        assert_eq!(offer(&mut server, &mut peer), Verdict::Admit);
    }

    #[test]
    fn rejects_a_maximum_limit_below_the_minimum() {
        let environment = Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = Params::read(ALGORITHM.params, &[("max_limit", RawParam::Integer(1))]).unwrap();
        assert!(halves(&params, &environment).is_err());
    }
}
