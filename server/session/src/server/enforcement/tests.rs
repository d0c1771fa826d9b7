//! The account against the real client under chance, against its definition, and against cheaters.

use super::*;
use crate::client::{Connection, ConnectionConfig, Event, Request};
use leeward_core::client::ClientParts;
use leeward_core::params::Raw;
use leeward_core::registry::Environment;
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_wire::{
    Answer, Credit, Decoder, Encoder, Frame, Method, Nanos32, PayloadLimit, Regime, RequestId, Response, Side,
    Timestamp, Version, Welcome,
};
use proptest::prelude::*;

/// World of an honest client and a server that tells it whatever windows it likes, with bytes under way in both
/// directions.
struct World {
    client: Connection<u32>,
    decoder: Decoder,
    enforcement: Enforcement,
    to_client: Vec<u8>,
    unanswered: Vec<(RequestId, Timestamp)>,
    registered: bool,
    submitted: u32,
    lawful: u32,
    now: Time,
    /// How much larger the windows are that the client hears than those the account is told: a defect, for the canary.
    lie: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(u8),
    /// Bytes that the server takes from the client, or the client from the server.
    Hear(usize),
    Reach(usize),
    /// Answers the call in this place, with this window.
    Answer(usize, u32),
    Tell(u32),
    /// Time in which what waits at the client may expire.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![1..200_usize, Just(64), Just(usize::MAX)];
    let window = || prop_oneof![4 => 0..8_u32, 1 => 0..70_u32];
    let step = prop_oneof![
        3 => (1..6_u8).prop_map(Step::Submit),
        4 => bytes().prop_map(Step::Hear),
        4 => bytes().prop_map(Step::Reach),
        4 => (0..100_usize, window()).prop_map(|(place, window)| Step::Answer(place, window)),
        2 => window().prop_map(Step::Tell),
        1 => (0..50_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..300)
}

fn feedback(window: u32) -> Feedback {
    Feedback { window: Credits(window), ..Feedback::NONE }
}

/// A client half of this crate's neighbour, waiting briefly so that requests expire too.
fn parts(controller: &str, pairs: &[(&str, Raw)]) -> ClientParts {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let environment = Environment::new(2, Nanos(10), Nanos(200));
    (algorithm.build_client)(&algorithm.params(pairs).unwrap(), &environment).unwrap()
}

impl World {
    fn new(parts: ClientParts) -> Self {
        World {
            client: Connection::new(parts, ConnectionConfig::default()),
            decoder: Decoder::new(Side::Client, PayloadLimit::DEFAULT),
            enforcement: Enforcement::binding(),
            to_client: Vec::new(),
            unanswered: Vec::new(),
            registered: false,
            submitted: 0,
            lawful: 0,
            now: Time(1),
            lie: 0,
        }
    }

    fn say(&mut self, frame: &Frame<'_>) {
        Encoder::new(PayloadLimit::DEFAULT).speaking(Version::NEWEST).append(frame, &mut self.to_client).unwrap();
    }

    /// The ruling that was not `Lawful`, if there was one.
    fn hear(&mut self, most: usize) -> Option<Ruling> {
        let output = self.client.output(self.now);
        let count = output.len().min(most).min(4096);
        self.decoder.spare()[..count].copy_from_slice(&output[..count]);
        self.decoder.filled(count);
        self.client.consumed(self.now, count, &mut |_| {});
        let mut welcome = None;
        let mut found = None;
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            match frame {
                Frame::Register(register) => welcome = Some(register.timestamp),
                Frame::Call(call) => match self.enforcement.call() {
                    Ruling::Lawful => {
                        self.lawful += 1;
                        self.unanswered.push((call.request, call.timestamp));
                    }
                    other => found = Some(other),
                },
                _ => {}
            }
        }
        if let Some(timestamp) = welcome {
            self.registered = true;
            // The welcome tells nothing but that windows bind: more comes with `Step::Tell`.
            self.enforcement.told(Credits(0));
            self.say(&Frame::Welcome(Welcome {
                timestamp,
                feedback: feedback(0),
                payload_max: PayloadLimit::DEFAULT,
                regime: Regime::Credits,
            }));
        }
        found
    }

    fn step(&mut self, step: &Step) -> Option<Ruling> {
        match *step {
            Step::Submit(count) => {
                for _ in 0..count {
                    self.submitted += 1;
                    let request = Request { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
                    self.client.submit(self.now, self.submitted, &request, &mut |_| {});
                }
            }
            Step::Hear(most) => return self.hear(most),
            Step::Reach(most) => {
                let count = self.to_client.len().min(most).min(4096);
                self.client.spare()[..count].copy_from_slice(&self.to_client[..count]);
                self.to_client.drain(..count);
                self.client.received(self.now, count, &mut |_: Event<'_, u32>| {}).unwrap();
            }
            Step::Answer(place, window) if !self.unanswered.is_empty() => {
                let (request, timestamp) = self.unanswered.swap_remove(place % self.unanswered.len());
                self.enforcement.answered(Credits(window));
                let answer = Answer { request, timestamp, feedback: feedback(window + self.lie), sojourn: Nanos32(0) };
                self.say(&Frame::Response(Response { answer, payload: b"" }));
            }
            Step::Tell(window) if self.registered => {
                self.enforcement.told(Credits(window));
                let credit = Credit { feedback: feedback(window + self.lie) };
                self.say(&Frame::Credit(credit));
            }
            Step::Answer(..) | Step::Tell(_) => {}
            Step::Pass(span) => {
                self.now += Nanos(span);
                self.client.on_timer(self.now, &mut |_| {});
            }
        }
        None
    }
}

fn kind_of_client(kind: u8) -> ClientParts {
    match kind {
        0 => parts("breakwater", &[]),
        1 => parts("breakwater", &[("demand", Raw::Text("synchronization".into()))]),
        2 => parts("breakwater", &[("client_delay", Raw::Text("20ns".into()))]),
        // A half that would send at will, governed by nothing but the protocol.
        _ => parts("none", &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// An honest client is never refused, whatever windows a server tells, and however the bytes are cut and delayed.
    #[test]
    fn an_honest_client_is_never_refused(kind in 0..4_u8, steps in steps()) {
        let mut world = World::new(kind_of_client(kind));
        for step in &steps {
            prop_assert_eq!(world.step(step), None, "at {:?}", step);
        }
    }

    /// The edge agrees with its definition: a call is lawful exactly if there is a window under which it might have
    /// been sent, told by now and not before the one that the client is known to have heard.
    #[test]
    fn the_edge_is_the_definition(events in prop::collection::vec((0..3_u8, 0..12_u32), 0..300)) {
        let mut enforcement = Enforcement::binding();
        let (mut calls, mut answers) = (0_u64, 0_u64);
        let mut told = vec![(0_u64, 1_u64)];
        let mut admitted = 0_u64;
        for (event, window) in events {
            match event {
                0 => {
                    calls += 1;
                    let lawful = told.iter().any(|(answered, window)| calls - answered <= *window);
                    let ruling = enforcement.call();
                    prop_assert_eq!(ruling == Ruling::Lawful, lawful);
                    if lawful {
                        admitted += 1;
                        // What a cheater gains is bounded: never more at once than the greatest window.
                        prop_assert!(admitted <= told.iter().map(|(_, window)| *window).max().unwrap_or(0));
                    } else {
                        answers += 1;
                        told.push((answers, window.into()));
                        enforcement.answered(Credits(window));
                    }
                }
                1 if admitted > 0 => {
                    admitted -= 1;
                    answers += 1;
                    told.push((answers, window.into()));
                    enforcement.answered(Credits(window));
                }
                1 => {}
                _ => {
                    told.push((answers, window.into()));
                    enforcement.told(Credits(window));
                }
            }
        }
    }
}

/// The canary: the same world sees a client that takes one credit more than it has.
#[test]
fn one_credit_too_many_is_noticed() {
    let mut world = World::new(parts("none", &[]));
    world.lie = 1;
    let mut refused = None;
    for round in 0..20 {
        let window = 3;
        for step in [Step::Submit(5), Step::Hear(usize::MAX), Step::Tell(window), Step::Reach(usize::MAX)] {
            refused = refused.or(world.step(&step));
        }
        if round > 1 {
            refused = refused.or(world.step(&Step::Answer(0, window)));
        }
    }
    assert_eq!(refused, Some(Ruling::Refused));
    assert!(world.lawful > 1);
}

#[test]
fn the_call_on_trust_is_lawful_even_if_the_welcome_brings_nothing() {
    let mut enforcement = Enforcement::binding();
    enforcement.told(Credits(0));
    assert_eq!(enforcement.call(), Ruling::Lawful);
    assert_eq!(enforcement.call(), Ruling::Refused);
}

#[test]
fn credits_that_cross_their_revocation_are_lawful_once() {
    let mut enforcement = Enforcement::binding();
    enforcement.told(Credits(5));
    enforcement.told(Credits(0));
    for _ in 0..5 {
        assert_eq!(enforcement.call(), Ruling::Lawful);
    }
    assert_eq!(enforcement.call(), Ruling::Refused);
    enforcement.answered(Credits(0));
    // The answers bring no credit, so there is none, however many of them.
    for _ in 0..5 {
        enforcement.answered(Credits(0));
        assert_eq!(enforcement.call(), Ruling::Refused);
        enforcement.answered(Credits(0));
    }
}

#[test]
fn advice_binds_nobody() {
    let mut enforcement = Enforcement::advising();
    for _ in 0..10_000 {
        enforcement.told(Credits(0));
        assert_eq!(enforcement.call(), Ruling::Lawful);
    }
}

/// Sends without credit once; how often it has been swept until it was read again.
fn cheat(enforcement: &mut Enforcement) -> (Ruling, u32) {
    let ruling = enforcement.call();
    if ruling == Ruling::Refused {
        enforcement.answered(Credits(0));
    }
    let mut sweeps = 0;
    while enforcement.is_paused() {
        let over = enforcement.swept();
        sweeps += 1;
        assert_eq!(over, !enforcement.is_paused());
    }
    assert!(!enforcement.swept(), "a pause ends once");
    (ruling, sweeps)
}

#[test]
fn who_goes_on_is_paused_longer_and_longer_and_then_sent_away() {
    let mut enforcement = Enforcement::binding();
    let _ = enforcement.call();
    for _ in 0..TOLERATED {
        assert_eq!(cheat(&mut enforcement), (Ruling::Refused, 0));
    }
    let mut last = 0;
    for _ in 0..PAUSES {
        let (ruling, sweeps) = cheat(&mut enforcement);
        assert_eq!(ruling, Ruling::Refused);
        assert!(sweeps > last);
        last = sweeps;
    }
    assert_eq!(cheat(&mut enforcement), (Ruling::Expelled, 0));
}

#[test]
fn long_good_conduct_is_rewarded() {
    let mut enforcement = Enforcement::binding();
    let _ = enforcement.call();
    for _ in 0..TOLERATED + 1 {
        let _ = cheat(&mut enforcement);
    }
    for _ in 0..FORGOTTEN_AFTER {
        enforcement.told(Credits(2));
        assert_eq!(enforcement.call(), Ruling::Lawful);
        enforcement.answered(Credits(0));
    }
    // Used up, so that the next is without credit again.
    while enforcement.call() == Ruling::Lawful {}
    enforcement.answered(Credits(0));
    for _ in 1..TOLERATED {
        assert_eq!(cheat(&mut enforcement), (Ruling::Refused, 0));
    }
    assert!(cheat(&mut enforcement).1 > 0);
}
