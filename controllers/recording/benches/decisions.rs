//! Nanoseconds per decision of every algorithm: one request and its reply at the server, one submit
//! and its reply at the client, one tick of the control loop. Compare within one run only: machines
//! differ.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Outcome, Registration, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{CreditId, Credits, Method, Nanos, Priority, Time};
use leeward_recording as recording;
use leeward_recording::{Block, Sink, SinkFull, record};

/// Sessions per core: enough that they don't all fit in the first-level cache.
const SESSIONS: u32 = 1_000;

fn environment() -> Environment {
    Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200))
}

fn each_algorithm(
    criterion: &mut Criterion,
    group: &str,
    mut run: impl FnMut(&mut criterion::Bencher<'_>, &Algorithm),
) {
    let mut group = criterion.benchmark_group(group);
    for algorithm in leeward_controllers::builtin().algorithms() {
        group.bench_function(algorithm.name, |bencher| run(bencher, algorithm));
    }
    group.finish();
}

/// Sink that takes all blocks and keeps none: measures the cost of recording without the disk.
struct NullSink;

impl Sink for NullSink {
    fn take(&mut self, block: Block) -> Result<Vec<u8>, SinkFull> {
        Ok(block.into_buffer())
    }
}

/// Order of the sessions' requests, and their methods.
#[derive(Clone, Copy)]
struct RequestPattern {
    /// Consecutive requests of a session within a round trip.
    consecutive: usize,
    /// Methods, used in turn.
    methods: u32,
}

/// One request per session in turn, with one method.
const PLAIN: RequestPattern = RequestPattern { consecutive: 1, methods: 1 };

fn server(criterion: &mut Criterion) {
    requests(criterion, "server: request and reply", PLAIN, |_, _, halves| halves);
}

/// Measures counts of sessions and methods: more methods than classes, and several requests of a
/// session in each round trip.
fn counted(criterion: &mut Criterion) {
    let pattern = RequestPattern { consecutive: 8, methods: 40 };
    requests(criterion, "server: request and reply, bursts of 40 methods", pattern, |_, _, halves| halves);
}

fn recorded(criterion: &mut Criterion) {
    requests(criterion, "server: request and reply, recorded", PLAIN, |algorithm, params, halves| {
        record(halves, &recording::Header::new("bench", algorithm, params, &environment()), Box::new(NullSink)).0
    });
}

fn requests(
    criterion: &mut Criterion,
    group: &str,
    pattern: RequestPattern,
    wrap: impl Fn(&Algorithm, &Params, ServerHalves) -> ServerHalves,
) {
    each_algorithm(criterion, group, |bencher, algorithm| {
        let params = algorithm.params(&[]).expect("defaults");
        let halves = algorithm.server(&params, &environment()).expect("defaults");
        let mut server = wrap(algorithm, &params, halves);
        let core = server.cores[0].as_mut();
        let mut sessions: Vec<Session> = (0..SESSIONS)
            .map(|slot| {
                let mut session = Session::new(SessionSlot(slot), CoreId(0));
                core.open(&mut session, &Registration { now: Time::ZERO, demand: 1 });
                session
            })
            .collect();
        let (mut now, mut next) = (Time::ZERO, 0);
        bencher.iter(|| {
            now += Nanos(1_000);
            next = (next + 1) % (sessions.len() * pattern.consecutive);
            let session = &mut sessions[next / pattern.consecutive];
            let arrival = Arrival::new(now)
                .with_demand(1)
                .with_priority(Priority::new(20))
                .with_delay(Nanos(30_000))
                .with_method(Method(next as u32 % pattern.methods))
                .with_random(now.0);
            let (verdict, pending) = session.request(core, &arrival);
            let outcome = match verdict {
                Verdict::Admit => Outcome::Completed,
                Verdict::Reject(_) => Outcome::Rejected,
            };
            let departure = Departure { now, outcome, sojourn: Nanos(40_000), credit: CreditId(now.0 - 800) };
            black_box(session.reply(core, pending, &departure))
        });
    });
}

fn tick(criterion: &mut Criterion) {
    each_algorithm(criterion, "server: tick", |bencher, algorithm| {
        let params = algorithm.params(&[]).expect("defaults");
        let mut server = algorithm.server(&params, &environment()).expect("defaults");
        let mut now = Time::ZERO;
        bencher.iter(|| {
            now += Nanos(10_000);
            let signals = Signals { packet_delay: Nanos(30_000), arrivals: 8, completions: 8, ..Signals::idle(now) };
            server.control.tick(black_box(&signals));
        });
    });
}

/// Counts sent requests.
struct Wire(u64);

impl ClientSink<u64> for Wire {
    fn send(&mut self, _: u64, _: Header) {
        self.0 += 1;
    }
    fn end(&mut self, _: u64, _: LocalOutcome) {}
    fn send_demand(&mut self, _: u32) {}
}

fn client(criterion: &mut Criterion) {
    each_algorithm(criterion, "client: submit and reply", |bencher, algorithm| {
        let params = algorithm.params(&[]).expect("defaults");
        let mut client: Client<u64> = algorithm.client(&params, &environment()).expect("defaults");
        let feedback = Feedback { window: Credits(2), threshold: Priority::new(64), ..Feedback::NONE };
        let (mut now, mut wire) = (Time::ZERO, Wire(0));
        client.on_credit(now, &feedback, &mut wire);
        bencher.iter(|| {
            now += Nanos(1_000_000);
            client.submit(now, now.0, Priority::new(20), now.0, &mut wire);
            if client.outstanding() > 0 {
                client.on_reply(now, Outcome::Completed, Nanos(30_000), &feedback, &mut wire);
            }
        });
        black_box(wire.0);
    });
}

criterion_group! {
    name = decisions;
    // Quick enough to run at every change; the numbers are stable to a few per cent.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .without_plots();
    targets = server, counted, recorded, tick, client
}
criterion_main!(decisions);
