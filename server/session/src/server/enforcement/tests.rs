//! Tests of the enforcement: against the real client with random steps, against the definition,
//! against violating clients.

use super::*;
use crate::client::{Connection, ConnectionConfig, Event, Request};
use leeward_core::client::ClientParts;
use leeward_core::params::RawParam;
use leeward_core::registry::Environment;
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_wire::{
    Answer, Credit, Decoder, Encoder, Frame, Method, Nanos32, PayloadLimit, Regime, RequestId, Response, Side,
    Timestamp, Version, Welcome,
};
use proptest::prelude::*;

/// An honest client and a server that sends it arbitrary windows, with bytes in flight in both
/// directions.
struct Harness {
    client: Connection<u32>,
    decoder: Decoder,
    enforcement: Enforcement,
    to_client: Vec<u8>,
    unanswered: Vec<(RequestId, Timestamp)>,
    registered: bool,
    submitted: u32,
    lawful: u32,
    now: Time,
    /// Difference between the windows sent to the client and those reported to the enforcement: a
    /// defect, for the canary.
    excess: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(u8),
    /// Bytes that the server takes from the client, or the client from the server.
    ReceiveAtServer(usize),
    ReceiveAtClient(usize),
    /// Answers the call at this index, with this window.
    Answer(usize, u32),
    SendWindow(u32),
    /// Time in which requests that wait at the client may expire.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![1..200_usize, Just(64), Just(usize::MAX)];
    let window = || prop_oneof![4 => 0..8_u32, 1 => 0..70_u32];
    let step = prop_oneof![
        3 => (1..6_u8).prop_map(Step::Submit),
        4 => bytes().prop_map(Step::ReceiveAtServer),
        4 => bytes().prop_map(Step::ReceiveAtClient),
        4 => (0..100_usize, window()).prop_map(|(index, window)| Step::Answer(index, window)),
        2 => window().prop_map(Step::SendWindow),
        1 => (0..50_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..300)
}

fn feedback(window: u32) -> Feedback {
    Feedback { window: Credits(window), ..Feedback::NONE }
}

/// A client half with a short delay limit, so that requests expire too.
fn parts(controller: &str, pairs: &[(&str, RawParam)]) -> ClientParts {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let environment = Environment::new(2, Nanos(10), Nanos(200));
    (algorithm.build_client)(&algorithm.params(pairs).unwrap(), &environment).unwrap()
}

impl Harness {
    fn new(parts: ClientParts) -> Self {
        Harness {
            client: Connection::new(parts, ConnectionConfig::default()),
            decoder: Decoder::new(Side::Client, PayloadLimit::DEFAULT),
            enforcement: Enforcement::binding(),
            to_client: Vec::new(),
            unanswered: Vec::new(),
            registered: false,
            submitted: 0,
            lawful: 0,
            now: Time(1),
            excess: 0,
        }
    }

    fn send_frame(&mut self, frame: &Frame<'_>) {
        Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST).append(frame, &mut self.to_client).unwrap();
    }

    /// Takes up to `most` bytes at the server. Returns the last check that was not `WithinWindow`,
    /// if any.
    fn receive(&mut self, most: usize) -> Option<CallCheck> {
        let output = self.client.output(self.now);
        let count = output.len().min(most).min(4096);
        self.decoder.spare()[..count].copy_from_slice(&output[..count]);
        self.decoder.advance(count);
        self.client.consume(self.now, count, &mut |_| {});
        let mut welcome = None;
        let mut found = None;
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            match frame {
                Frame::Register(register) => welcome = Some(register.timestamp),
                Frame::Call(call) => match self.enforcement.on_call() {
                    CallCheck::WithinWindow => {
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
            // The welcome has a window of zero and binds the client: more comes with
            // `Step::SendWindow`.
            self.enforcement.on_window_sent(Credits(0));
            self.send_frame(&Frame::Welcome(Welcome {
                timestamp,
                feedback: feedback(0),
                payload_max: PayloadLimit::DEFAULT,
                regime: Regime::Credits,
            }));
        }
        found
    }

    fn step(&mut self, step: &Step) -> Option<CallCheck> {
        match *step {
            Step::Submit(count) => {
                for _ in 0..count {
                    self.submitted += 1;
                    let request = Request { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
                    self.client.submit(self.now, self.submitted, &request, &mut |_| {});
                }
            }
            Step::ReceiveAtServer(most) => return self.receive(most),
            Step::ReceiveAtClient(most) => {
                let count = self.to_client.len().min(most).min(4096);
                self.client.spare()[..count].copy_from_slice(&self.to_client[..count]);
                self.to_client.drain(..count);
                self.client.on_received(self.now, count, &mut |_: Event<'_, u32>| {}).unwrap();
            }
            Step::Answer(index, window) if !self.unanswered.is_empty() => {
                let (request, timestamp) = self.unanswered.swap_remove(index % self.unanswered.len());
                self.enforcement.on_answer_sent(Credits(window));
                let answer =
                    Answer { request, timestamp, feedback: feedback(window + self.excess), sojourn: Nanos32(0) };
                self.send_frame(&Frame::Response(Response { answer, payload: b"" }));
            }
            Step::SendWindow(window) if self.registered => {
                self.enforcement.on_window_sent(Credits(window));
                let credit = Credit { feedback: feedback(window + self.excess) };
                self.send_frame(&Frame::Credit(credit));
            }
            Step::Answer(..) | Step::SendWindow(_) => {}
            Step::Wait(span) => {
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
        1 => parts("breakwater", &[("demand", RawParam::Text("synchronization".into()))]),
        2 => parts("breakwater", &[("client_delay", RawParam::Text("20ns".into()))]),
        // A half with an open gate, limited by the protocol alone.
        _ => parts("none", &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// An honest client is never rejected, for all windows of the server, and however bytes are
    /// split and delayed.
    #[test]
    fn an_honest_client_is_never_refused(kind in 0..4_u8, steps in steps()) {
        let mut harness = Harness::new(kind_of_client(kind));
        for step in &steps {
            prop_assert_eq!(harness.step(step), None, "at {:?}", step);
        }
    }

    /// The window end agrees with its definition: a call is valid exactly if some window permitted
    /// it. The window must be sent by now, and no earlier than the last window that the client is
    /// known to have received.
    #[test]
    fn the_window_end_matches_its_definition(events in prop::collection::vec((0..3_u8, 0..12_u32), 0..300)) {
        let mut enforcement = Enforcement::binding();
        let (mut calls, mut answers) = (0_u64, 0_u64);
        let mut windows = vec![(0_u64, 1_u64)];
        let mut admitted = 0_u64;
        for (event, window) in events {
            match event {
                0 => {
                    calls += 1;
                    let is_valid = windows.iter().any(|(answers_then, window)| calls - answers_then <= *window);
                    let check = enforcement.on_call();
                    prop_assert_eq!(check == CallCheck::WithinWindow, is_valid);
                    if is_valid {
                        admitted += 1;
                        // The gain of a violating client is bounded: never more calls at once than
                        // the greatest window.
                        prop_assert!(admitted <= windows.iter().map(|(_, window)| *window).max().unwrap_or(0));
                    } else {
                        answers += 1;
                        windows.push((answers, window.into()));
                        enforcement.on_answer_sent(Credits(window));
                    }
                }
                1 if admitted > 0 => {
                    admitted -= 1;
                    answers += 1;
                    windows.push((answers, window.into()));
                    enforcement.on_answer_sent(Credits(window));
                }
                1 => {}
                _ => {
                    windows.push((answers, window.into()));
                    enforcement.on_window_sent(Credits(window));
                }
            }
        }
    }
}

/// The canary: the same harness detects a client that takes one credit too many.
#[test]
fn one_credit_too_many_is_detected() {
    let mut harness = Harness::new(parts("none", &[]));
    harness.excess = 1;
    let mut violation = None;
    for round in 0..20 {
        let window = 3;
        for step in [
            Step::Submit(5),
            Step::ReceiveAtServer(usize::MAX),
            Step::SendWindow(window),
            Step::ReceiveAtClient(usize::MAX),
        ] {
            violation = violation.or(harness.step(&step));
        }
        if round > 1 {
            violation = violation.or(harness.step(&Step::Answer(0, window)));
        }
    }
    assert_eq!(violation, Some(CallCheck::NoCredit));
    assert!(harness.lawful > 1);
}

#[test]
fn the_first_call_is_valid_even_if_the_welcome_grants_no_credit() {
    let mut enforcement = Enforcement::binding();
    enforcement.on_window_sent(Credits(0));
    assert_eq!(enforcement.on_call(), CallCheck::WithinWindow);
    assert_eq!(enforcement.on_call(), CallCheck::NoCredit);
}

#[test]
fn credits_that_cross_their_revocation_are_valid_once() {
    let mut enforcement = Enforcement::binding();
    enforcement.on_window_sent(Credits(5));
    enforcement.on_window_sent(Credits(0));
    for _ in 0..5 {
        assert_eq!(enforcement.on_call(), CallCheck::WithinWindow);
    }
    assert_eq!(enforcement.on_call(), CallCheck::NoCredit);
    enforcement.on_answer_sent(Credits(0));
    // The answers bring no credit, however many there are.
    for _ in 0..5 {
        enforcement.on_answer_sent(Credits(0));
        assert_eq!(enforcement.on_call(), CallCheck::NoCredit);
        enforcement.on_answer_sent(Credits(0));
    }
}

#[test]
fn advisory_enforcement_rejects_no_call() {
    let mut enforcement = Enforcement::advisory();
    for _ in 0..10_000 {
        enforcement.on_window_sent(Credits(0));
        assert_eq!(enforcement.on_call(), CallCheck::WithinWindow);
    }
}

/// Sends a call without credit. Returns the check and the number of scans until the connection was
/// read again.
fn violate(enforcement: &mut Enforcement) -> (CallCheck, u32) {
    let check = enforcement.on_call();
    if check == CallCheck::NoCredit {
        enforcement.on_answer_sent(Credits(0));
    }
    let mut scans = 0;
    while enforcement.is_paused() {
        let over = enforcement.on_scan();
        scans += 1;
        assert_eq!(over, !enforcement.is_paused());
    }
    assert!(!enforcement.on_scan(), "a pause ends once");
    (check, scans)
}

#[test]
fn repeated_violations_pause_a_client_longer_and_then_disconnect_it() {
    let mut enforcement = Enforcement::binding();
    let _ = enforcement.on_call();
    for _ in 0..TOLERATED_VIOLATIONS {
        assert_eq!(violate(&mut enforcement), (CallCheck::NoCredit, 0));
    }
    let mut last = 0;
    for _ in 0..PAUSES {
        let (check, scans) = violate(&mut enforcement);
        assert_eq!(check, CallCheck::NoCredit);
        assert!(scans > last);
        last = scans;
    }
    assert_eq!(violate(&mut enforcement), (CallCheck::Disconnect, 0));
}

#[test]
fn violations_are_forgiven_after_many_valid_calls() {
    let mut enforcement = Enforcement::binding();
    let _ = enforcement.on_call();
    for _ in 0..TOLERATED_VIOLATIONS + 1 {
        let _ = violate(&mut enforcement);
    }
    for _ in 0..FORGIVE_AFTER {
        enforcement.on_window_sent(Credits(2));
        assert_eq!(enforcement.on_call(), CallCheck::WithinWindow);
        enforcement.on_answer_sent(Credits(0));
    }
    // All credits are used, so the next call is without credit again.
    while enforcement.on_call() == CallCheck::WithinWindow {}
    enforcement.on_answer_sent(Credits(0));
    for _ in 1..TOLERATED_VIOLATIONS {
        assert_eq!(violate(&mut enforcement), (CallCheck::NoCredit, 0));
    }
    assert!(violate(&mut enforcement).1 > 0);
}
