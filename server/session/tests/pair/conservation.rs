//! Tests of the harness: the same seed gives the same run, another seed another run; and canaries,
//! which the conservation checks must detect.

use crate::support::{PairExt, TIMEOUT, call, encode_version, fragmenting_wire, pair, relaxed_slo, start};
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Admission, Arrival, Departure, Feedback, Registration, ServerHalves, Session, SessionSlot, Verdict,
};
use leeward_core::units::{Credits, Nanos, Time};
use leeward_pair::{Endpoint, Pair, PairConfig, RequestOutcome, WireModel, echo};
use leeward_wire::Version;

/// Runs twenty requests by each of three clients. Returns the hash of all events.
fn trace(seed: u64, wire: WireModel) -> u64 {
    let mut pair = pair("breakwater", PairConfig { seed, wire, ..PairConfig::default() }, echo(Nanos::from_micros(10)));
    let clients: Vec<_> = (0..3).map(|_| pair.connect()).collect();
    for round in 0..20_u8 {
        for client in &clients {
            pair.submit(*client, &[round; 40]);
        }
        pair.run_for(Nanos::from_micros(30));
    }
    pair.wait_until("all have ended", |pair| clients.iter().all(|client| pair.open_requests(*client) == 0));
    for client in clients {
        let completed = Some(RequestOutcome::Completed(vec![19; 40]));
        assert_eq!(pair.outcomes(client).last(), Some(&completed));
        pair.deregister(client);
    }
    pair.assert_settled();
    pair.trace()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for wire in [WireModel::default(), fragmenting_wire()] {
        assert_eq!(trace(7, wire), trace(7, wire));
    }
    assert_ne!(trace(7, fragmenting_wire()), trace(8, fragmenting_wire()));
}

/// Breakwater with a leak, like a lost update: every thirtieth response takes a credit that the
/// controller does not account for.
struct Leaky {
    inner: Box<dyn Admission>,
    replies: u64,
}

impl Admission for Leaky {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        self.inner.open(session, event);
    }
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        self.inner.request(session, event)
    }
    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let feedback = self.inner.reply(session, event);
        self.replies += 1;
        if self.replies.is_multiple_of(30) {
            session.window = Credits(session.window.0 + 1);
        }
        feedback
    }
    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        self.inner.next_to_wake(random)
    }
    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.inner.wake(session, now)
    }
    fn close(&mut self, session: &mut Session, now: Time) {
        self.inner.close(session, now);
    }
}

#[test]
fn a_lost_credit_is_caught() {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let leaky = Algorithm {
        build_server: |params, environment| {
            let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
            let halves = breakwater.server(params, environment)?;
            let leaky = |inner| Box::new(Leaky { inner, replies: 0 }) as Box<dyn Admission>;
            Ok(ServerHalves { cores: halves.cores.into_iter().map(leaky).collect(), control: halves.control })
        },
        ..breakwater
    };
    let params = leaky.params(&[]).unwrap();
    let mut pair = Pair::new(&leaky, &params, relaxed_slo(), PairConfig::default(), echo(Nanos(1_000))).unwrap();
    let client = pair.connect();
    for _ in 0..50 {
        pair.submit(client, b"x");
        pair.run_for(Nanos::from_micros(100));
    }
    let violation = pair.violation().expect("a checker that can't see a leaked credit sees nothing");
    assert!(violation.contains("credits issued, but sessions hold"), "{violation}");
}

#[test]
fn an_answer_that_comes_twice_is_caught() {
    let mut pair = pair("breakwater", PairConfig::default(), echo(Nanos(1_000)));
    let client = pair.connect();
    let request = pair.submit(client, b"x");
    // The chunk with the answer is in flight.
    assert!(pair.run_while(TIMEOUT, |pair| pair.counts().completed == 0));
    pair.forge(client, Endpoint::Client, |chunks| {
        let answer = chunks.last().unwrap().clone();
        chunks.push(answer);
    });
    pair.run_for(Nanos::from_millis(1));
    assert_eq!(pair.outcome(client, request), Some(&RequestOutcome::Completed(b"x".to_vec())));
    let violation = pair.violation().expect("the second answer is seen");
    assert!(violation.contains("which waits for none"), "{violation}");
}

#[test]
fn a_call_without_credit_is_caught() {
    let mut pair = start("breakwater");
    let client = pair.connect();
    pair.submit(client, b"x");
    let mut forged = Vec::new();
    (100..200).for_each(|request| forged.extend(encode_version(Version::NEWEST, &call(request, b""))));
    pair.forge(client, Endpoint::Server, |chunks| chunks.push(forged));
    pair.run_for(Nanos::from_millis(10));
    let violation = pair.violation().expect("the refusal is seen");
    assert!(violation.contains("refused"), "{violation}");
}
