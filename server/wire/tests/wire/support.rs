//! Shared parts of the tests: an example of every kind (the ones in `docs/protocol.md`), random
//! frames, and a function that feeds a decoder in pieces.

#![allow(dead_code, reason = "each test file uses a part of it")]

use leeward_core::server::Feedback;
use leeward_core::units::{Credits, Nanos, Priority};
use leeward_wire::{
    Answer, Budget, Call, Cancel, Credit, CreditId, Decoder, Demand, Encoder, ErrorCode, Failure, FailureCode,
    FatalError, Field, Frame, Message, Method, Nanos32, PayloadLimit, Ping, Pong, Regime, Register, RejectCode,
    Rejection, RequestId, Response, Side, Timestamp, Version, Welcome, WireError,
};
use proptest::prelude::*;

const FEEDBACK: Feedback =
    Feedback { window: Credits(5), threshold: Priority::LOWEST, custom: 0, credit: CreditId::NONE };

/// Answer fields of the examples.
pub(crate) fn answer() -> Answer {
    Answer {
        request: RequestId::new(7).unwrap(),
        timestamp: Timestamp(0x0102_0304_0506_0708),
        feedback: Feedback { credit: CreditId(0x2a), ..FEEDBACK },
        sojourn: Nanos32(12_000),
    }
}

/// The example call.
pub(crate) fn call() -> Call<'static> {
    Call {
        request: RequestId::new(7).unwrap(),
        timestamp: Timestamp(0x0102_0304_0506_0708),
        credit: CreditId(0x29),
        method: Method(3),
        demand: 2,
        budget: Budget::of(Nanos::from_micros(80)),
        priority: Priority::new(64),
        payload: b"get a",
    }
}

/// Frames of every kind, by their names in `docs/protocol.md`.
pub(crate) fn examples() -> Vec<(&'static str, Frame<'static>)> {
    let timestamp = Timestamp(0x0102_0304_0506_0708);
    vec![
        ("register", Frame::Register(Register { timestamp, demand: 3, payload_max: PayloadLimit::DEFAULT })),
        (
            "welcome",
            Frame::Welcome(Welcome {
                timestamp,
                feedback: Feedback { window: Credits(1), credit: CreditId(0x29), ..FEEDBACK },
                payload_max: PayloadLimit::DEFAULT,
                regime: Regime::Credits,
            }),
        ),
        ("call", Frame::Call(call())),
        ("response", Frame::Response(Response { answer: answer(), payload: b"1" })),
        (
            "drop",
            Frame::Drop(Rejection {
                answer: Answer {
                    feedback: Feedback {
                        window: Credits(0),
                        threshold: Priority::new(32),
                        custom: 0xcafe,
                        credit: CreditId(0x2a),
                    },
                    ..answer()
                },
                reason: RejectCode::Delay,
                message: Message::default(),
                retry_after: Nanos32(500_000),
            }),
        ),
        (
            "drop-lock",
            Frame::Drop(Rejection {
                answer: answer(),
                reason: RejectCode::Lock,
                message: Message::new("accounts"),
                retry_after: Nanos32(0),
            }),
        ),
        (
            "failure",
            Frame::Failure(Failure {
                answer: answer(),
                code: FailureCode::UnknownMethod,
                message: Message::new("no method 3"),
            }),
        ),
        ("credit", Frame::Credit(Credit { feedback: Feedback { credit: CreditId(0x2b), ..FEEDBACK } })),
        ("demand", Frame::Demand(Demand { demand: 16 })),
        ("deregister", Frame::Deregister),
        ("ping", Frame::Ping(Ping { timestamp })),
        ("pong", Frame::Pong(Pong { timestamp })),
        (
            "error",
            Frame::Error(FatalError {
                code: ErrorCode::Version,
                message: Message::new("version 3 is not spoken here"),
            }),
        ),
        ("cancel", Frame::Cancel(Cancel { request: RequestId::new(7).unwrap() })),
    ]
}

/// The side that may send `frame`; the client if both may.
pub(crate) fn sender(frame: &Frame<'_>) -> Side {
    if frame.kind().is_sent_by(Side::Client) { Side::Client } else { Side::Server }
}

/// Encodes `frame` in the first version that has it.
pub(crate) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    encoded_in(frame.min_version(), frame)
}

/// Encodes `frame` in a version.
pub(crate) fn encoded_in(version: Version, frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = Encoder::new(PayloadLimit::DEFAULT).with_version(version).append(frame, &mut bytes).unwrap();
    assert_eq!((length, length), (bytes.len(), frame.encoded_len()));
    bytes
}

/// Outcome of decoding a stream: the frames, encoded again, and the end of the stream.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodeOutcome {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) end: Result<(), WireError>,
}

/// Feeds `bytes` in pieces of the lengths in `chunks`, repeated in a cycle, or as a whole if
/// `chunks` is empty. Checks at every step: bounded memory, progress, and finality of errors.
pub(crate) fn decode_chunks(bytes: &[u8], chunks: &[usize], from: Side, limit: PayloadLimit) -> DecodeOutcome {
    let mut decoder = Decoder::new(from, limit);
    let mut frames = Vec::new();
    let (mut rest, mut taken) = (bytes, 0);
    let mut chunks = chunks.iter().copied().filter(|chunk| *chunk > 0).cycle();
    while !rest.is_empty() {
        let spare = decoder.spare();
        assert!(!spare.is_empty(), "no room for the rest of a frame");
        let count = chunks.next().unwrap_or(usize::MAX).min(spare.len()).min(rest.len());
        spare[..count].copy_from_slice(&rest[..count]);
        decoder.advance(count);
        rest = &rest[count..];
        loop {
            let before = decoder.buffered();
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let mut again = Vec::new();
                    // The frame's own version: an error's version may differ from its stream's.
                    let version = Version::from_number(bytes[taken + Field::Version.offset()]).unwrap();
                    Encoder::new(PayloadLimit::MAX).with_version(version).append(&frame, &mut again).unwrap();
                    taken += again.len();
                    assert!(frame.kind().is_sent_by(from));
                    frames.push(again);
                    assert_eq!(decoder.buffered() + frames.last().unwrap().len(), before, "lost or doubled bytes");
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error), "an error must be final");
                    assert!(decoder.spare().is_empty());
                    assert_eq!(decoder.finish(), Err(error));
                    return DecodeOutcome { frames, end: Err(error) };
                }
            }
        }
        assert!(decoder.capacity() <= limit.bytes() as usize + 64, "{} bytes held", decoder.capacity());
    }
    DecodeOutcome { frames, end: decoder.finish() }
}

/// A frame with an owned payload, for strategies.
#[derive(Clone, Debug)]
pub(crate) struct OwnedFrame {
    frame: Frame<'static>,
    payload: Vec<u8>,
    text: String,
}

impl OwnedFrame {
    /// The frame with its payload or message.
    pub(crate) fn frame(&self) -> Frame<'_> {
        match self.frame {
            Frame::Call(call) => Frame::Call(Call { payload: &self.payload, ..call }),
            Frame::Response(response) => Frame::Response(Response { payload: &self.payload, ..response }),
            Frame::Failure(failure) => Frame::Failure(Failure { message: Message::new(&self.text), ..failure }),
            Frame::Error(fatal) => Frame::Error(FatalError { message: Message::new(&self.text), ..fatal }),
            frame => frame,
        }
    }
}

/// Values with extremes at a higher probability.
fn boundary_u32() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]
}

fn boundary_u64() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()]
}

fn feedback() -> impl Strategy<Value = Feedback> {
    (boundary_u32(), 1..=128_u8, boundary_u64(), boundary_u64()).prop_map(|(window, threshold, custom, credit)| {
        Feedback { window: Credits(window), threshold: Priority::new(threshold), custom, credit: CreditId(credit) }
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    (1..=u64::MAX, boundary_u64(), feedback(), boundary_u32()).prop_map(|(request, timestamp, feedback, sojourn)| {
        Answer {
            request: RequestId::new(request).unwrap(),
            timestamp: Timestamp(timestamp),
            feedback,
            sojourn: Nanos32(sojourn),
        }
    })
}

fn calls() -> impl Strategy<Value = Call<'static>> {
    (
        1..=u64::MAX,
        boundary_u64(),
        boundary_u64(),
        boundary_u32(),
        boundary_u32(),
        prop::option::of(boundary_u64()),
        1..=128_u8,
    )
        .prop_map(|(request, timestamp, credit, method, demand, budget, priority)| Call {
            request: RequestId::new(request).unwrap(),
            timestamp: Timestamp(timestamp),
            credit: CreditId(credit),
            method: Method(method),
            demand,
            budget: budget.map_or(Budget::UNLIMITED, |ns| Budget::of(Nanos(ns))),
            priority: Priority::new(priority),
            payload: b"",
        })
}

fn limits() -> impl Strategy<Value = PayloadLimit> {
    boundary_u32().prop_map(PayloadLimit::new)
}

/// Frames that a client may send.
fn from_client() -> impl Strategy<Value = Frame<'static>> {
    prop_oneof![
        1 => (boundary_u64(), boundary_u32(), limits()).prop_map(|(timestamp, demand, payload_max)| Frame::Register(Register {
            timestamp: Timestamp(timestamp),
            demand,
            payload_max
        })),
        4 => calls().prop_map(Frame::Call),
        1 => boundary_u32().prop_map(|demand| Frame::Demand(Demand { demand })),
        1 => Just(Frame::Deregister),
        1 => (1..=u64::MAX).prop_map(|request| Frame::Cancel(Cancel { request: RequestId::new(request).unwrap() })),
        1 => boundary_u64().prop_map(|timestamp| Frame::Ping(Ping { timestamp: Timestamp(timestamp) })),
        1 => boundary_u64().prop_map(|timestamp| Frame::Pong(Pong { timestamp: Timestamp(timestamp) })),
    ]
}

/// Frames that a server may send.
fn from_server() -> impl Strategy<Value = Frame<'static>> {
    let message = Message::default();
    prop_oneof![
        1 => (boundary_u64(), feedback(), limits(), prop::sample::select(Regime::ALL)).prop_map(
            |(timestamp, feedback, payload_max, regime)| Frame::Welcome(Welcome {
                timestamp: Timestamp(timestamp),
                feedback,
                payload_max,
                regime
            })
        ),
        3 => answers().prop_map(|answer| Frame::Response(Response { answer, payload: b"" })),
        1 => (answers(), prop::sample::select(RejectCode::ALL), boundary_u32()).prop_map(move |(answer, reason, retry_after)| {
            Frame::Drop(Rejection { answer, reason, message, retry_after: Nanos32(retry_after) })
        }),
        1 => (answers(), prop::sample::select(FailureCode::ALL))
            .prop_map(move |(answer, code)| Frame::Failure(Failure { answer, code, message })),
        1 => feedback().prop_map(|feedback| Frame::Credit(Credit { feedback })),
        1 => boundary_u64().prop_map(|timestamp| Frame::Ping(Ping { timestamp: Timestamp(timestamp) })),
        1 => boundary_u64().prop_map(|timestamp| Frame::Pong(Pong { timestamp: Timestamp(timestamp) })),
        1 => prop::sample::select(ErrorCode::ALL).prop_map(move |code| Frame::Error(FatalError { code, message })),
    ]
}

/// Frames of one side, with payloads up to 3000 bytes.
pub(crate) fn frames(from: Side) -> BoxedStrategy<OwnedFrame> {
    let frame = match from {
        Side::Client => from_client().boxed(),
        Side::Server => from_server().boxed(),
    };
    let payload =
        prop_oneof![Just(0), Just(64), 0..3_000_usize].prop_flat_map(|n| prop::collection::vec(any::<u8>(), n));
    (frame, payload, "\\PC{0,40}").prop_map(|(frame, payload, text)| OwnedFrame { frame, payload, text }).boxed()
}

/// Either side.
pub(crate) fn sides() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}
