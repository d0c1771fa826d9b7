//! No allocation per request: a counting allocator watches every algorithm's warm hot path, under
//! admitted and under rejected load. It covers the server (request, reply, tick, wake) and the
//! client (submit, reply, timer). Sessions may allocate when they open.

#![cfg(not(loom))]

use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::params::RawParam;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Outcome, Registration, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{Method, Nanos, Priority, Time};
use leeward_testkit::allocator::{CountingAllocator, allocations_in};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SESSIONS: usize = 32;
/// Thousands of methods: an algorithm that distinguishes them must do so in memory that it has.
const METHODS: u32 = 3_000;

/// Requests that a client has sent and the server has not received.
#[derive(Default)]
struct Wire {
    sent: Vec<Header>,
    demand: Option<u32>,
}

impl ClientSink<u64> for Wire {
    fn send(&mut self, _: u64, header: Header) {
        assert!(self.sent.len() < self.sent.capacity(), "the test's own buffer must not grow");
        self.sent.push(header);
    }
    fn end(&mut self, _: u64, _: LocalOutcome) {}
    fn send_demand(&mut self, demand: u32) {
        self.demand = Some(demand);
    }
}

struct Peer {
    session: Session,
    client: Client<u64>,
    wire: Wire,
}

struct Plant {
    now: Time,
    server: ServerHalves,
    peers: Vec<Peer>,
    random: u64,
    completed: u64,
    dropped: u64,
}

impl Plant {
    fn new(algorithm: &Algorithm, pairs: &[(&str, RawParam)]) -> Self {
        let environment = Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = algorithm.params(pairs).expect("declared");
        let mut server = algorithm.server(&params, &environment).expect("valid");
        let peers = (0..SESSIONS).map(|index| {
            let core = index % 2;
            let mut session = Session::new(SessionSlot((index / 2) as u32), CoreId(core as u32));
            server.cores[core].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
            let client = algorithm.client(&params, &environment).expect("valid");
            Peer { session, client, wire: Wire { sent: Vec::with_capacity(1_024), demand: None } }
        });
        let peers = peers.collect();
        Plant { now: Time::ZERO, server, peers, random: 1, completed: 0, dropped: 0 }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random
    }

    /// Runs 10 µs in which every client issues two requests, and each sent request is answered.
    fn round(&mut self, delay: Nanos) {
        self.now += Nanos::from_micros(10);
        let now = self.now;
        self.server.control.tick(&Signals { packet_delay: delay, arrivals: 10, completions: 10, ..Signals::idle(now) });
        self.wake();
        for index in 0..self.peers.len() {
            let random = [self.random(), self.random()];
            let peer = &mut self.peers[index];
            let core = self.server.cores[index % 2].as_mut();
            for random in random {
                peer.client.submit(now, 0, Priority::from_random(random.rotate_left(7)), random, &mut peer.wire);
            }
            peer.client.on_timer(now, &mut peer.wire);
            let _ = peer.client.next_timeout(now);
            if let Some(demand) = peer.wire.demand.take() {
                peer.session.demand = demand;
                if let Some(feedback) = core.demand(&mut peer.session, now) {
                    peer.client.on_credit(now, &feedback, &mut peer.wire);
                }
            }
            // A request that leaves because of a response is answered in the next round.
            for _ in 0..peer.wire.sent.len() {
                let header = peer.wire.sent.remove(0);
                let arrival = Arrival::new(now)
                    .with_demand(header.demand)
                    .with_priority(header.priority)
                    .with_delay(delay)
                    .with_method(Method((random[1] >> 33) as u32 % METHODS))
                    .with_random(random[0]);
                let (verdict, pending) = peer.session.request(core, &arrival);
                let outcome = match verdict {
                    Verdict::Admit => Outcome::Completed,
                    Verdict::Reject(_) => Outcome::Rejected,
                };
                match outcome {
                    Outcome::Completed => self.completed += 1,
                    Outcome::Rejected => self.dropped += 1,
                }
                let sojourn = delay + Nanos::from_micros(10);
                let departure = Departure { now, outcome, sojourn, credit: header.credit };
                let feedback = peer.session.reply(core, pending, &departure);
                peer.client.on_reply(now, outcome, sojourn, &feedback, &mut peer.wire);
            }
        }
    }

    fn wake(&mut self) {
        let random = self.random();
        for core in 0..2 {
            while let Some(slot) = self.server.cores[core].next_to_wake(random) {
                let peer = &mut self.peers[slot.0 as usize * 2 + core];
                let feedback: Feedback = self.server.cores[core].wake(&mut peer.session, self.now);
                peer.client.on_credit(self.now, &feedback, &mut peer.wire);
            }
        }
    }
}

fn check(algorithm: &Algorithm, pairs: &[(&str, RawParam)]) {
    let mut plant = Plant::new(algorithm, pairs);
    let quiet = Nanos::ZERO;
    let overload = Nanos::from_micros(500);
    let phases = [quiet, overload, Nanos::from_micros(60), quiet];
    let mut run = |rounds: u32| {
        for delay in phases {
            (0..rounds).for_each(|_| plant.round(delay));
        }
    };
    run(500); // queues and lists reach their size
    let counted = allocations_in(|| run(500));
    assert_eq!(counted, 0, "{} {pairs:?}", algorithm.name);
    let rejects = ["breakwater", "dagor", "codel", "throttle"].contains(&algorithm.name);
    assert!(plant.completed > 100, "{}: only {} served", algorithm.name, plant.completed);
    assert!(plant.dropped > 0 || !rejects, "{}: nothing rejected", algorithm.name);
}

#[test]
fn the_allocation_counter_counts() {
    assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn no_algorithm_allocates_per_request() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        check(algorithm, &[]);
    }
}

#[test]
fn no_parameter_choice_allocates_per_request() {
    let registry = leeward_controllers::builtin();
    let text = |text: &str| RawParam::Text(text.into());
    let breakwater = registry.find("breakwater").expect("built in");
    check(breakwater, &[("waking", text("random"))]);
    check(breakwater, &[("demand", text("synchronization"))]);
    check(breakwater, &[("credits", text("off"))]);
    check(registry.find("codel").expect("built in"), &[("law", text("sqrt"))]);
    check(registry.find("seda").expect("built in"), &[("initial_rate", text("100000"))]);
}

/// Every threading policy, at loads that make it switch: the arrival, the copy of the ring and the
/// decision.
#[test]
fn threading_policies_decide_without_allocating() {
    use leeward_threading::curves::{Curve, CurvePoint, Curves};
    use leeward_threading::registry::POLICIES;
    use leeward_threading::{ArrivalRing, ThreadEnvironment, ThreadSignals, ThreadingSetup};
    use std::sync::Arc;

    let curve = |setup: &str, us: f64, limit: f64| {
        let point =
            |load| CurvePoint { load, p50_us: us, p99_us: us, p999_us: us, cpu: 1.0, samples: 500, spread: 0.1 };
        Curve { setup: setup.parse().expect("a setup"), points: vec![point(10.0), point(limit)], max_load: limit }
    };
    let all = vec![curve("SIP1", 100.0, 900.0), curve("SDB1-4", 150.0, 5_000.0), curve("SDB1-16", 200.0, 90_000.0)];
    let curves = Some(Arc::new(Curves::new(all).expect("sound")));
    let environment = ThreadEnvironment::new(curves, ThreadingSetup::Cores(1), 2).with_slo(Nanos::from_millis(1));
    for spec in POLICIES {
        let mut policy = spec.build(&spec.params(&[]).expect("defaults"), &environment).expect("curves");
        let ring = ArrivalRing::new();
        let mut signals = ThreadSignals::idle(Time::ZERO, policy.initial());
        let mut switches = 0;
        let allocations = allocations_in(|| {
            for gap in [2_000_000, 300_000, 20_000, 2_000_000, 20_000] {
                for _ in 0..1_000 {
                    signals.now += Nanos(gap);
                    ring.record(signals.now);
                    signals.demand = Some(leeward_core::units::Rate(1e9 / gap as f64));
                    signals.runnable = (gap / 300_000) as u16;
                    signals.arrivals = ring.window(policy.window());
                    if let Some(setup) = policy.decide(&signals) {
                        (signals.current, signals.current_since) = (setup, signals.now);
                        switches += 1;
                    }
                }
            }
        });
        assert_eq!(allocations, 0, "{}", spec.name);
        assert!(switches >= 2 || spec.name == "static", "{}: {switches} switches", spec.name);
    }
}
