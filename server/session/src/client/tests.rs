//! Tests of a connection against a scripted server, and against random steps.

use std::collections::BTreeMap;

use leeward_core::client::{ClientConfig, ClientHalf, Gate, LocalReason};
use leeward_core::units::{CreditId, Credits};
use proptest::prelude::*;

use super::*;
use leeward_wire::{
    Credit, ErrorCode, Failure, FailureCode, FatalError, HEADER_LEN, Message, Nanos32, Ping, RejectCode, Rejection,
    RequestId, Response, Version,
};

/// Client half that sends as many calls as the window permits.
struct WindowHalf(u32);

impl ClientHalf for WindowHalf {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        if outstanding < self.0 { Gate::Open } else { Gate::Closed }
    }
    fn reply(&mut self, event: &leeward_core::client::Reply) {
        self.0 = event.feedback.window.0;
    }
    fn credit(&mut self, _: Time, feedback: &Feedback) {
        self.0 = feedback.window.0;
    }
    fn announces_demand(&self) -> bool {
        true
    }
}

/// Client half whose gate is always open.
struct OpenHalf;

impl ClientHalf for OpenHalf {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}

const QUEUE: usize = 3;
const OUTSTANDING: u32 = 8;

fn parts(half: Box<dyn ClientHalf>) -> ClientParts {
    let config = ClientConfig { queue: QUEUE, max_delay: Nanos(100), max_outstanding: OUTSTANDING };
    ClientParts { half, config }
}

/// The server's end, with all ends that the client reported.
struct TestServer {
    connection: Connection<u32>,
    now: Time,
    /// Frames that the server has received, by name, and calls without an answer.
    received: Vec<String>,
    calls: Vec<(RequestId, Timestamp)>,
    decoder: Decoder,
    registered: Timestamp,
    /// How each request ended.
    outcomes: BTreeMap<u32, String>,
    request_ids: BTreeMap<u32, RequestId>,
}

/// Records an end, and panics at a second end of the same request.
fn record_end(outcomes: &mut BTreeMap<u32, String>, event: &Event<'_, u32>) {
    let description = match event {
        Event::Completed { payload, round_trip, sojourn, .. } => {
            format!("completed {} after {round_trip}, {sojourn} of it there", String::from_utf8_lossy(payload))
        }
        Event::Rejected { reason, .. } => format!("dropped {reason:?}"),
        Event::Failed { code, message, .. } => format!("failed {code:?} {}", message.as_str()),
        Event::EndedLocally { end, .. } => format!("ended {:?}", end.reason),
        Event::TooLong { limit, .. } => format!("too long for {}", limit.bytes()),
        Event::Disconnected { stage: at, .. } => format!("disconnected {at:?}"),
    };
    let earlier = outcomes.insert(*event.token(), description);
    assert_eq!(earlier, None, "request {} ended twice", event.token());
}

impl TestServer {
    fn new(half: Box<dyn ClientHalf>, config: ConnectionConfig) -> Self {
        TestServer {
            connection: Connection::new(parts(half), config),
            now: Time(1_000),
            received: Vec::new(),
            calls: Vec::new(),
            decoder: Decoder::new(Side::Client, PayloadLimit::DEFAULT),
            registered: Timestamp(0),
            outcomes: BTreeMap::new(),
            request_ids: BTreeMap::new(),
        }
    }

    /// A server past the welcome.
    fn ready(half: Box<dyn ClientHalf>, window: u32, regime: Regime) -> Self {
        let mut server = TestServer::new(half, ConnectionConfig::default());
        server.flush(usize::MAX);
        server.welcome(window, regime).unwrap();
        server.received.clear();
        server
    }

    fn submit(&mut self, token: u32) {
        self.submit_payload(token, token.to_string().as_bytes());
    }

    fn submit_payload(&mut self, token: u32, payload: &[u8]) {
        let request = Request { method: Method(7), payload, priority: Priority::HIGHEST, random: 0 };
        let outcomes = &mut self.outcomes;
        if let Some(id) = self.connection.submit(self.now, token, &request, &mut |event| record_end(outcomes, &event)) {
            self.request_ids.insert(token, id);
        }
    }

    fn cancel(&mut self, token: u32) {
        let Some(id) = self.request_ids.get(&token) else { return };
        let outcomes = &mut self.outcomes;
        let cancelled = self.connection.cancel(self.now, *id, &mut |event| record_end(outcomes, &event));
        if let Some((found, stage)) = cancelled {
            assert_eq!(found, token);
            assert_eq!(
                self.outcomes.insert(token, format!("cancelled {stage:?}")),
                None,
                "request {token} ended twice"
            );
        }
    }

    /// Moves up to `most` bytes to the server.
    fn flush(&mut self, most: usize) {
        let output = self.connection.output(self.now);
        let count = output.len().min(most);
        let mut left = &output[..count];
        while !left.is_empty() {
            let spare = self.decoder.spare();
            let some = spare.len().min(left.len());
            spare[..some].copy_from_slice(&left[..some]);
            left = &left[some..];
            self.decoder.advance(some);
            while let Some(frame) = self.decoder.next_frame().expect("the client speaks the protocol") {
                match frame {
                    Frame::Register(register) => {
                        assert!(self.received.is_empty(), "a registration comes first");
                        self.registered = register.timestamp;
                        self.received.push(format!("register demand {}", register.demand));
                    }
                    Frame::Call(call) => {
                        assert!(!self.calls.iter().any(|(id, _)| *id == call.request), "an identifier in use");
                        self.calls.push((call.request, call.timestamp));
                        let payload = String::from_utf8_lossy(call.payload).chars().take(8).collect::<String>();
                        self.received.push(format!("call {payload} demand {} credit {}", call.demand, call.credit.0));
                    }
                    Frame::Demand(demand) => self.received.push(format!("demand {}", demand.demand)),
                    other => self.received.push(other.kind().to_string()),
                }
            }
        }
        let outcomes = &mut self.outcomes;
        self.connection.consume(self.now, count, &mut |event| record_end(outcomes, &event));
    }

    /// The server sends `frame`.
    fn send_frame(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST).append(frame, &mut bytes).unwrap();
        self.send_bytes(&bytes)
    }

    fn send_bytes(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        while !bytes.is_empty() {
            let spare = self.connection.spare();
            let count = spare.len().min(bytes.len());
            spare[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let outcomes = &mut self.outcomes;
            self.connection.on_received(self.now, count, &mut |event| record_end(outcomes, &event))?;
        }
        Ok(())
    }

    fn welcome(&mut self, window: u32, regime: Regime) -> Result<(), ConnectionError> {
        self.send_frame(&Frame::Welcome(Welcome {
            timestamp: self.registered,
            feedback: Feedback { credit: CreditId(1), ..feedback(window) },
            payload_max: PayloadLimit::new(2048),
            regime,
        }))
    }

    fn answer(&mut self, index: usize, window: u32) -> Answer {
        let (request, timestamp) = self.calls.remove(index);
        let feedback = Feedback { credit: CreditId(2), ..feedback(window) };
        Answer { request, timestamp, feedback, sojourn: Nanos32(5) }
    }

    fn respond(&mut self, index: usize, window: u32) -> Result<(), ConnectionError> {
        let answer = self.answer(index, window);
        self.send_frame(&Frame::Response(Response { answer, payload: b"ok" }))
    }

    fn timer(&mut self) {
        let outcomes = &mut self.outcomes;
        self.connection.on_timer(self.now, &mut |event| record_end(outcomes, &event));
    }

    fn close(&mut self) {
        let outcomes = &mut self.outcomes;
        self.connection.close(self.now, &mut |event| record_end(outcomes, &event));
    }

    fn deregister(&mut self) {
        let outcomes = &mut self.outcomes;
        self.connection.deregister(self.now, &mut |event| record_end(outcomes, &event));
    }

    fn end(&mut self) -> Result<(), ConnectionError> {
        let outcomes = &mut self.outcomes;
        self.connection.on_eof(self.now, &mut |event| record_end(outcomes, &event))
    }
}

fn feedback(window: u32) -> Feedback {
    Feedback { window: Credits(window), ..Feedback::NONE }
}

#[test]
fn one_call_is_sent_before_the_welcome_and_the_rest_within_the_window() {
    let mut server = TestServer::new(Box::new(OpenHalf), ConnectionConfig::default());
    for token in 1..=3 {
        server.submit(token);
    }
    server.flush(usize::MAX);
    assert_eq!(server.received, ["register demand 0", "call 1 demand 0 credit 0"]);
    assert_eq!(server.connection.phase(), Phase::Registering);

    server.received.clear();
    server.now = Time(1_040);
    server.welcome(2, Regime::Credits).unwrap();
    server.flush(usize::MAX);
    assert_eq!(server.received, ["call 2 demand 1 credit 1"], "the algorithm would send both; the protocol binds");
    assert_eq!(server.connection.welcome().unwrap().round_trip, Nanos(40));

    server.now = Time(1_050);
    server.respond(0, 2).unwrap();
    assert_eq!(server.outcomes[&1], "completed ok after 50ns, 5ns of it there");
    server.flush(usize::MAX);
    assert_eq!(server.received[1..], ["call 3 demand 0 credit 2"]);
}

#[test]
fn in_the_open_regime_the_algorithm_decides() {
    let mut server = TestServer::ready(Box::new(OpenHalf), 0, Regime::Open);
    for token in 1..=4 {
        server.submit(token);
    }
    assert_eq!(server.connection.in_flight(), 4);
}

#[test]
fn the_registration_carries_the_demand_and_later_changes_are_announced() {
    let mut server = TestServer::new(Box::new(WindowHalf(0)), ConnectionConfig::default());
    server.submit(1);
    server.submit(2);
    server.flush(usize::MAX);
    server.submit(3);
    server.flush(usize::MAX);
    assert_eq!(server.received, ["register demand 2", "demand 3"]);
    server.welcome(1, Regime::Credits).unwrap();
    let feedback = Feedback { credit: CreditId(9), ..feedback(2) };
    server.send_frame(&Frame::Credit(Credit { feedback })).unwrap();
    server.flush(usize::MAX);
    assert_eq!(server.received[2..], ["call 1 demand 2 credit 1", "call 2 demand 1 credit 9"]);
}

#[test]
fn every_outcome_reaches_the_application() {
    let mut server = TestServer::ready(Box::new(WindowHalf(0)), 2, Regime::Credits);
    for token in 1..=6 {
        server.submit(token);
    }
    assert_eq!(server.outcomes[&3], "ended Overflow");
    server.flush(usize::MAX);
    let answer = server.answer(0, 1);
    let rejection =
        Rejection { answer, reason: RejectCode::Delay, message: Default::default(), retry_after: Nanos32(0) };
    server.send_frame(&Frame::Drop(rejection)).unwrap();
    assert_eq!(server.outcomes[&1], "dropped Delay");
    let answer = server.answer(0, 0);
    let failure = Failure { answer, code: FailureCode::UnknownMethod, message: Message::new("no 7") };
    server.send_frame(&Frame::Failure(failure)).unwrap();
    assert_eq!(server.outcomes[&2], "failed UnknownMethod no 7");
    server.submit_payload(7, &[0; 2049]);
    assert_eq!(server.outcomes[&7], "too long for 2048");
    assert_eq!(server.connection.next_timeout(server.now), Some(Time(1_100)));
    server.now = Time(1_100);
    server.timer();
    assert_eq!(server.outcomes.len(), 7);
    assert_eq!(server.outcomes[&6], format!("ended {:?}", LocalReason::Expired));
}

#[test]
fn before_the_welcome_only_short_payloads_are_taken() {
    let mut server = TestServer::new(Box::new(OpenHalf), ConnectionConfig::default());
    server.submit_payload(1, &[0; 1025]);
    assert_eq!(server.outcomes[&1], "too long for 1024");
    server.submit_payload(2, &[0; 1024]);
    assert_eq!(server.outcomes.len(), 1);
}

#[test]
fn a_disconnect_ends_queued_and_sent_requests() {
    let mut server = TestServer::ready(Box::new(WindowHalf(0)), 1, Regime::Credits);
    server.submit(1);
    server.submit(2);
    assert_eq!(server.end(), Err(ConnectionError::ClosedByServer));
    assert_eq!(server.outcomes[&1], "disconnected Sent");
    assert_eq!(server.outcomes[&2], "disconnected Waiting");
    server.submit(3);
    assert_eq!(server.outcomes[&3], "disconnected Waiting");
    assert_eq!(server.connection.next_timeout(server.now), None);
    assert!(server.connection.output(server.now).is_empty());
    assert!(server.connection.spare().is_empty());
}

#[test]
fn deregistering_waits_for_pending_answers() {
    let mut server = TestServer::ready(Box::new(WindowHalf(0)), 1, Regime::Credits);
    server.submit(1);
    server.submit(2);
    server.deregister();
    server.submit(3);
    server.flush(usize::MAX);
    assert_eq!(server.received.last().unwrap(), "Deregister");
    server.respond(0, 9).unwrap();
    server.flush(usize::MAX);
    assert_eq!(server.received.last().unwrap(), "Deregister", "nothing is sent after it");
    assert_eq!(server.end(), Ok(()));
    let ends: Vec<_> = server.outcomes.values().map(|end| end.split(' ').next().unwrap()).collect();
    assert_eq!(ends, ["completed", "disconnected", "disconnected"]);
}

#[test]
fn an_answer_without_a_request_is_fatal() {
    for case in ["twice", "stray", "echo"] {
        let mut server = TestServer::ready(Box::new(OpenHalf), 4, Regime::Credits);
        server.submit(1);
        server.submit(2);
        server.flush(usize::MAX);
        let mut answer = server.answer(0, 4);
        let error = match case {
            "twice" => {
                server.send_frame(&Frame::Response(Response { answer, payload: b"" })).unwrap();
                server.send_frame(&Frame::Response(Response { answer, payload: b"" })).unwrap_err()
            }
            "stray" => {
                answer.request = RequestId::new(1 << 32).unwrap();
                server.send_frame(&Frame::Response(Response { answer, payload: b"" })).unwrap_err()
            }
            _ => {
                answer.timestamp = Timestamp(1);
                server.send_frame(&Frame::Response(Response { answer, payload: b"" })).unwrap_err()
            }
        };
        let expected = if case == "echo" { "returned the timestamp" } else { "waits for none" };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(server.outcomes.len(), 2, "{case}");
        assert_eq!(server.connection.phase(), Phase::Closed);
    }
}

#[test]
fn unexpected_frames_are_fatal() {
    let mut server = TestServer::new(Box::new(OpenHalf), ConnectionConfig::default());
    server.flush(usize::MAX);
    let credit = Frame::Credit(Credit { feedback: feedback(1) });
    assert_eq!(server.send_frame(&credit), Err(ConnectionError::Unexpected { kind: Kind::Credit }));

    let mut server = TestServer::ready(Box::new(OpenHalf), 1, Regime::Open);
    assert_eq!(server.welcome(1, Regime::Open), Err(ConnectionError::Unexpected { kind: Kind::Welcome }));

    let mut server = TestServer::ready(Box::new(OpenHalf), 1, Regime::Open);
    server.submit(1);
    let fatal = FatalError { code: ErrorCode::ShuttingDown, message: Message::new("bye") };
    let error = server.send_frame(&Frame::Error(fatal)).unwrap_err();
    assert_eq!(error, ConnectionError::Server { code: ErrorCode::ShuttingDown, message: "bye".into() });
    assert_eq!(server.outcomes[&1], "disconnected Sent");
    assert_eq!(server.send_frame(&credit).unwrap_err(), error, "and stays so");
}

#[test]
fn a_full_outbox_closes_the_gate() {
    let config = ConnectionConfig { output_max: 3 * HEADER_LEN, ..ConnectionConfig::default() };
    let mut server = TestServer::new(Box::new(OpenHalf), config);
    server.flush(usize::MAX);
    server.welcome(0, Regime::Open).unwrap();
    for token in 1..=6 {
        server.submit(token);
    }
    assert_eq!(server.connection.in_flight(), 3);
    assert_eq!(server.connection.waiting(), 3);
    // The server reads slowly: the next call leaves only when space for a whole frame is free.
    server.flush(10);
    assert_eq!(server.connection.in_flight(), 4);
    server.flush(usize::MAX);
    server.flush(usize::MAX);
    assert_eq!(server.connection.in_flight(), 6);
    assert_eq!(server.connection.waiting(), 0);
}

#[test]
fn pings_are_answered_up_to_a_limit() {
    let mut server = TestServer::ready(Box::new(OpenHalf), 1, Regime::Open);
    server.send_frame(&Frame::Ping(Ping { timestamp: Timestamp(77) })).unwrap();
    server.flush(usize::MAX);
    assert_eq!(server.received, ["Pong"]);
    let flood = |server: &mut TestServer| {
        (0..10_000).find_map(|_| server.send_frame(&Frame::Ping(Ping { timestamp: Timestamp(1) })).err())
    };
    assert_eq!(flood(&mut server), Some(ConnectionError::PingFlood));
}

#[test]
fn a_cancelled_request_frees_its_place_and_keeps_its_credit_until_the_answer() {
    let mut server = TestServer::ready(Box::new(WindowHalf(0)), 1, Regime::Credits);
    for token in 1..=3 {
        server.submit(token);
    }
    server.flush(usize::MAX);
    server.cancel(2);
    assert_eq!(server.outcomes[&2], "cancelled Waiting");
    assert_eq!(server.connection.waiting(), 1);
    server.cancel(1);
    server.cancel(1);
    assert_eq!(server.outcomes[&1], "cancelled Sent");
    assert_eq!((server.connection.in_flight(), server.connection.waiting()), (1, 1), "no credit came back by itself");
    assert!(!server.connection.would_send(server.now));
    server.flush(usize::MAX);
    let frames = &server.received[server.received.len() - 2..];
    assert_eq!(
        frames,
        ["demand 1", "Cancel"],
        "a change of demand is announced, and of what was sent the server is told"
    );
    server.respond(0, 1).unwrap();
    server.flush(usize::MAX);
    assert_eq!((server.connection.in_flight(), server.connection.waiting()), (1, 0));
    server.respond(0, 1).unwrap();
    assert!(server.outcomes[&3].starts_with("completed"));
    assert!(server.connection.would_send(server.now));
    assert_eq!(server.outcomes.len(), 3);
}

#[test]
fn a_pong_is_accepted_once_and_only_after_a_ping() {
    let mut server = TestServer::ready(Box::new(OpenHalf), 1, Regime::Open);
    assert!(server.connection.ping(Time(2_000)));
    assert!(!server.connection.ping(Time(2_001)), "one is open");
    let pong = Frame::Pong(Pong { timestamp: Timestamp(2_000) });
    server.send_frame(&pong).unwrap();
    assert!(server.connection.ping(Time(2_002)));
    assert_eq!(
        server.send_frame(&pong),
        Err(ConnectionError::TimestampMismatch { kind: Kind::Pong, sent: 2_002, found: 2_000 }),
        "an answer to another"
    );
    let mut server = TestServer::ready(Box::new(OpenHalf), 1, Regime::Open);
    assert_eq!(server.send_frame(&pong), Err(ConnectionError::Unexpected { kind: Kind::Pong }));
    assert!(!server.connection.ping(server.now), "it is over");
}

/// Step of the random test.
#[derive(Clone, Debug)]
enum Step {
    Submit(usize),
    Cancel(usize),
    Wait(u64),
    Carry(usize),
    Welcome(u32),
    Respond(usize, u32),
    Drop(usize, u32),
    Credit(u32),
    Ping,
    Noise(Vec<u8>),
    Deregister,
    End,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => prop_oneof![4 => 0..40usize, 1 => 1000..3000usize].prop_map(Step::Submit),
        6 => any::<usize>().prop_map(Step::Cancel),
        8 => (0..150u64).prop_map(Step::Wait),
        15 => prop_oneof![1 => 1..200usize, 1 => Just(usize::MAX)].prop_map(Step::Carry),
        6 => (0..6u32).prop_map(Step::Welcome),
        15 => (any::<usize>(), 0..6u32).prop_map(|(index, window)| Step::Respond(index, window)),
        8 => (any::<usize>(), 0..6u32).prop_map(|(index, window)| Step::Drop(index, window)),
        5 => (0..6u32).prop_map(Step::Credit),
        2 => Just(Step::Ping),
        1 => prop::collection::vec(any::<u8>(), 1..100).prop_map(Step::Noise),
        1 => Just(Step::Deregister),
        1 => Just(Step::End),
        1 => Just(Step::Close),
    ]
}

impl TestServer {
    fn step(&mut self, step: &Step, regime: Regime, token: &mut u32) {
        match step {
            Step::Submit(length) => {
                self.submit_payload(*token, &vec![b'x'; *length]);
                *token += 1;
            }
            Step::Cancel(which) if *token > 0 => self.cancel(*which as u32 % *token),
            Step::Wait(span) => {
                self.now += Nanos(*span);
                self.timer();
            }
            Step::Carry(most) => self.flush(*most),
            Step::Welcome(window) if self.connection.welcome().is_none() && self.registered.0 != 0 => {
                let _ = self.welcome(*window, regime);
            }
            Step::Respond(index, window) if self.connection.welcome().is_some() && !self.calls.is_empty() => {
                let _ = self.respond(index % self.calls.len(), *window);
            }
            Step::Drop(index, window) if self.connection.welcome().is_some() && !self.calls.is_empty() => {
                let answer = self.answer(index % self.calls.len(), *window);
                let rejection = Rejection {
                    answer,
                    reason: RejectCode::Other,
                    message: Default::default(),
                    retry_after: Nanos32(0),
                };
                let _ = self.send_frame(&Frame::Drop(rejection));
            }
            Step::Credit(window) if self.connection.welcome().is_some() => {
                let _ = self.send_frame(&Frame::Credit(Credit { feedback: feedback(*window) }));
            }
            Step::Ping if self.connection.welcome().is_some() => {
                let _ = self.send_frame(&Frame::Ping(Ping { timestamp: Timestamp(1) }));
            }
            Step::Noise(bytes) => {
                let _ = self.send_bytes(bytes);
            }
            Step::Deregister => self.deregister(),
            Step::End => {
                let _ = self.end();
            }
            Step::Close => self.close(),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once(
        steps in prop::collection::vec(step(), 0..200),
        windowed in any::<bool>(),
        binding in any::<bool>(),
        output_max in 1..2000usize,
    ) {
        let half: Box<dyn ClientHalf> = if windowed { Box::new(WindowHalf(0)) } else { Box::new(OpenHalf) };
        let regime = if binding { Regime::Credits } else { Regime::Open };
        let config = ConnectionConfig { output_max, ..ConnectionConfig::default() };
        let mut server = TestServer::new(half, config);
        let mut token = 0;
        for step in &steps {
            server.step(step, regime, &mut token);
            let connection = &mut server.connection;
            // `record_end` has checked that no request ended twice; no request is lost either.
            let in_progress = connection.state.slots.tracked();
            prop_assert_eq!(server.outcomes.len() as u32 + in_progress, token);
            prop_assert!(in_progress <= connection.waiting() + connection.in_flight());
            prop_assert!(connection.waiting() as usize <= QUEUE && connection.in_flight() <= OUTSTANDING);
            let pongs = 64 * HEADER_LEN;
            prop_assert!(connection.output(server.now).len() <= output_max + HEADER_LEN + 2048 + pongs);
        }
        server.close();
        prop_assert_eq!(server.outcomes.len() as u32, token);
    }

    #[test]
    fn no_bytes_make_the_client_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), after_welcome in any::<bool>()) {
        let mut server = TestServer::new(Box::new(OpenHalf), ConnectionConfig::default());
        server.flush(usize::MAX);
        if after_welcome {
            server.welcome(3, Regime::Credits).unwrap();
        }
        server.submit(1);
        let _ = server.send_bytes(&bytes);
        let _ = server.end();
        prop_assert_eq!(server.outcomes.len(), 1);
    }
}
