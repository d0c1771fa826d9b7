//! Tables: every kind both ways, every invalid header with its error, and numbers at their limits.

use crate::support::{answer, call, decode_chunks, encoded, encoded_in, examples, sender};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Priority};
use leeward_wire::{
    Budget, Call, DecodeStatus, Decoder, EncodeError, Encoder, ErrorCode, Field, Frame, HEADER_LEN, Kind, MESSAGE_MAX,
    Message, Nanos32, PayloadLimit, RejectCode, Rejection, Response, Side, Version, WireError, decode,
};

fn decoded(bytes: &[u8], from: Side) -> Result<DecodeStatus<'_>, WireError> {
    decode(bytes, from, PayloadLimit::DEFAULT)
}

#[test]
fn every_kind_has_an_example_that_round_trips() {
    let examples = examples();
    let mut kinds: Vec<Kind> = examples.iter().map(|(_, frame)| frame.kind()).collect();
    // Some kinds have more than one example.
    kinds.dedup();
    assert_eq!(kinds, Kind::ALL);
    for (name, frame) in examples {
        let bytes = encoded(&frame);
        assert_eq!(decoded(&bytes, sender(&frame)), Ok(DecodeStatus::Frame { frame, length: bytes.len() }), "{name}");
    }
}

/// Sets each unused byte of every example's header to 1: the decoder must reject it.
#[test]
fn unused_header_bytes_must_be_zero() {
    for (name, frame) in examples() {
        let used: Vec<usize> = [Field::Magic, Field::Version, Field::Kind]
            .iter()
            .chain(frame.kind().fields())
            .flat_map(|field| field.offset()..field.offset() + field.size())
            .collect();
        let is_length = |at: usize| (4..8).contains(&at);
        for at in (0..HEADER_LEN).filter(|at| !used.contains(at)) {
            let mut bytes = encoded(&frame);
            assert_eq!(bytes[at], 0, "{name} at {at}");
            bytes[at] = 1;
            let found = decoded(&bytes, sender(&frame));
            match found {
                Err(WireError::PayloadTooLarge { limit: 0, .. }) if is_length(at) => {}
                Err(WireError::NotZero { kind, field }) if !is_length(at) => {
                    assert_eq!(kind, frame.kind());
                    assert!((field.offset()..field.offset() + field.size()).contains(&at), "{name} at {at}: {field}");
                }
                _ => panic!("{name} with a stray byte at {at}: {found:?}"),
            }
        }
    }
}

#[test]
fn frames_from_the_wrong_side_are_rejected() {
    for (name, frame) in examples() {
        for from in [Side::Client, Side::Server] {
            let bytes = encoded(&frame);
            let kind = frame.kind();
            if kind.is_sent_by(from) {
                assert!(decoded(&bytes, from).is_ok(), "{name}");
            } else {
                let error = WireError::Direction { kind, from };
                assert_eq!(decoded(&bytes, from), Err(error), "{name}");
                assert_eq!(error.code(), ErrorCode::Unexpected);
            }
        }
    }
}

/// A stream has one version, except for an error of version 1 from a server that speaks no other.
#[test]
fn a_stream_has_one_version() {
    let of = |name: &str| examples().into_iter().find(|(other, _)| *other == name).unwrap().1;
    let mixed = |found, stream| Err(WireError::VersionMismatch { found, stream });
    let decode_chunks = |side, frames: &[(Version, &str)]| {
        let bytes: Vec<u8> = frames.iter().flat_map(|(version, name)| encoded_in(*version, &of(name))).collect();
        let outcome = decode_chunks(&bytes, &[7], side, PayloadLimit::DEFAULT);
        (outcome.frames.len(), outcome.end)
    };
    let (one, two) = (Version::One, Version::Two);
    assert_eq!(decode_chunks(Side::Client, &[(two, "register"), (two, "call"), (two, "cancel")]), (3, Ok(())));
    assert_eq!(decode_chunks(Side::Client, &[(one, "register"), (two, "call")]), (1, mixed(two, one)));
    assert_eq!(decode_chunks(Side::Client, &[(two, "register"), (one, "call")]), (1, mixed(one, two)));
    assert_eq!(decode_chunks(Side::Server, &[(two, "welcome"), (one, "error")]), (2, Ok(())));
    assert_eq!(decode_chunks(Side::Server, &[(one, "error"), (two, "welcome")]), (2, Ok(())), "an error fixes nothing");
    assert_eq!(decode_chunks(Side::Server, &[(one, "welcome"), (two, "error")]), (1, mixed(two, one)));
}

#[test]
fn version_1_has_no_cancel_frame() {
    let cancel = encoded(&examples().into_iter().find(|(name, _)| *name == "cancel").unwrap().1);
    let mut first = cancel.clone();
    first[2] = 1;
    assert_eq!(decoded(&first, Side::Client), Err(WireError::Kind { found: 13 }));
    let reason = RejectCode::Cancelled;
    let dropped =
        Frame::Drop(Rejection { answer: answer(), reason, message: Message::default(), retry_after: Nanos32(0) });
    let mut bytes = encoded(&dropped);
    assert_eq!(decoded(&bytes, Side::Server), Ok(DecodeStatus::Frame { frame: dropped, length: 64 }));
    bytes[2] = 1;
    let wrong = WireError::Value { kind: Kind::Drop, field: Field::Code, value: 7 };
    assert_eq!(decoded(&bytes, Side::Server), Err(wrong));
    let (kind, version) = (Kind::Drop, Version::One);
    let refused = Err(EncodeError::Version { kind, version });
    assert_eq!(Encoder::new(PayloadLimit::DEFAULT).append(&dropped, &mut Vec::new()), refused);
}

/// Encodes a frame, and replaces some of its bytes.
fn with(frame: &Frame<'_>, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = encoded(frame);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    all
}

#[test]
fn each_decoding_error_is_named() {
    let find = |name: &str| examples().into_iter().find(|(other, _)| *other == name).unwrap().1;
    let (call, response, register) = (find("call"), find("response"), find("register"));
    let check = |frame: &Frame<'_>, at: usize, bytes: &[u8], error: WireError, code: ErrorCode| {
        assert_eq!(decoded(&with(frame, at, bytes), sender(frame)), Err(error));
        assert_eq!(error.code(), code);
        assert!(!error.to_string().is_empty());
    };
    let value = |kind, field, value| WireError::Value { kind, field, value };
    let malformed = ErrorCode::Malformed;
    check(&call, 0, b"GE", WireError::Magic { found: *b"GE" }, malformed);
    check(&call, 2, &[3], WireError::Version { found: 3 }, ErrorCode::Version);
    check(&call, 2, &[0], WireError::Version { found: 0 }, ErrorCode::Version);
    check(&call, 3, &[0], WireError::Kind { found: 0 }, malformed);
    check(&call, 3, &[13], WireError::Kind { found: 13 }, malformed);
    check(&call, 8, &[0; 8], value(Kind::Call, Field::RequestId, 0), malformed);
    check(&call, 60, &[0], value(Kind::Call, Field::Priority, 0), malformed);
    check(&call, 60, &[129], value(Kind::Call, Field::Priority, 129), malformed);
    check(&call, 63, &[128], WireError::NotZero { kind: Kind::Call, field: Field::Flags }, malformed);
    check(&response, 61, &[0], value(Kind::Response, Field::Threshold, 0), malformed);
    check(&response, 61, &[255], value(Kind::Response, Field::Threshold, 255), malformed);
    check(&register, 40, &[0; 4], value(Kind::Register, Field::PayloadMax, 0), malformed);
    check(&register, 40, &[255; 4], value(Kind::Register, Field::PayloadMax, u64::from(u32::MAX)), malformed);
    for (name, good) in [("welcome", 1..=2_u8), ("drop", 1..=6), ("failure", 1..=3), ("error", 1..=9)] {
        let frame = find(name);
        for code in 0..=u8::MAX {
            let result = decoded(&with(&frame, 62, &[code]), Side::Server).map(|_| ());
            let expected = if good.contains(&code) || (name == "drop" && code == 255) {
                Ok(())
            } else {
                Err(value(frame.kind(), Field::Code, code.into()))
            };
            assert_eq!(result, expected, "{name} {code}");
        }
    }
    let broken = with(&find("failure"), HEADER_LEN, &[0xff]);
    assert_eq!(decoded(&broken, Side::Server), Err(WireError::Text { kind: Kind::Failure }));
}

#[test]
fn an_oversized_payload_is_rejected_after_eight_bytes() {
    let too_large = |kind, length, limit| Err(WireError::PayloadTooLarge { kind, length, limit });
    let prefix = |kind: Kind, length: u32| {
        let mut bytes = vec![b'L', b'W', 1, kind.number()];
        bytes.extend(length.to_le_bytes());
        bytes
    };
    let limit = PayloadLimit::DEFAULT.bytes();
    assert_eq!(decoded(&prefix(Kind::Call, limit), Side::Client), Ok(DecodeStatus::Incomplete { needed: 64 }));
    assert_eq!(decoded(&prefix(Kind::Call, limit + 1), Side::Client), too_large(Kind::Call, limit + 1, limit));
    assert_eq!(decoded(&prefix(Kind::Call, u32::MAX), Side::Client), too_large(Kind::Call, u32::MAX, limit));
    assert_eq!(decoded(&prefix(Kind::Ping, 1), Side::Client), too_large(Kind::Ping, 1, 0));
    let message = MESSAGE_MAX as u32;
    assert_eq!(decoded(&prefix(Kind::Error, message), Side::Server), Ok(DecodeStatus::Incomplete { needed: 64 }));
    assert_eq!(decoded(&prefix(Kind::Error, message + 1), Side::Server), too_large(Kind::Error, message + 1, message));

    // An announced length alone causes no allocation.
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::MAX);
    let long = &with(&Frame::Call(call()), 4, &PayloadLimit::MAX.bytes().to_le_bytes())[..HEADER_LEN];
    decoder.spare()[..HEADER_LEN].copy_from_slice(long);
    decoder.advance(HEADER_LEN);
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(decoder.spare().len() > 1_000);
    assert!(decoder.capacity() <= 16 * 1024);
}

/// The decoder recognizes another protocol before 64 bytes have arrived: such a peer may wait for
/// an answer.
#[test]
fn another_protocol_is_recognised_at_once() {
    let outcome = decode_chunks(b"GET / HTTP/1.1\r\n\r\n", &[3], Side::Client, PayloadLimit::DEFAULT);
    assert_eq!(outcome.end, Err(WireError::Magic { found: *b"GE" }));
}

#[test]
fn frames_before_an_error_are_delivered_and_nothing_after_it() {
    let good = encoded(&Frame::Call(call()));
    let stream = [&good[..], &good, &[0; 64], &good].concat();
    let outcome = decode_chunks(&stream, &[], Side::Client, PayloadLimit::DEFAULT);
    assert_eq!(outcome.frames, [&good[..], &good]);
    assert_eq!(outcome.end, Err(WireError::Magic { found: [0, 0] }));
}

#[test]
fn an_end_inside_a_frame_is_a_truncation() {
    let bytes = encoded(&Frame::Call(call()));
    for (cut, needed) in [(1, 8), (8, 64), (63, 64), (64, 69), (68, 69)] {
        let outcome = decode_chunks(&bytes[..cut], &[], Side::Client, PayloadLimit::DEFAULT);
        assert_eq!(outcome.end, Err(WireError::Truncated { buffered: cut, needed }));
    }
}

#[test]
fn the_longest_frame_fits_exactly() {
    for limit in [PayloadLimit::MIN, PayloadLimit::new(20_000), PayloadLimit::DEFAULT] {
        let payload = vec![7; limit.bytes() as usize];
        let frame = Frame::Call(Call { payload: &payload, ..call() });
        let small = encoded(&Frame::Call(call()));
        let mut stream = small.clone();
        Encoder::new(limit).append(&frame, &mut stream).unwrap();
        stream.extend(&small);
        for chunk in [1_000, 4_096, usize::MAX] {
            // `decode_chunks` checks that the decoder holds no more than the limit and a header.
            let outcome = decode_chunks(&stream, &[chunk], Side::Client, limit);
            assert_eq!(outcome.end, Ok(()));
            assert_eq!(outcome.frames.len(), 3);
        }
    }
}

#[test]
fn an_encoder_refuses_what_the_peer_would() {
    let encoder = Encoder::new(PayloadLimit::MIN);
    let payload = [0; 1025];
    let error = EncodeError::PayloadTooLarge { length: 1025, limit: 1024 };
    let mut out = vec![1, 2, 3];
    for frame in [
        Frame::Call(Call { payload: &payload, ..call() }),
        Frame::Response(Response { answer: answer(), payload: &payload }),
    ] {
        assert_eq!(encoder.append(&frame, &mut out), Err(error));
        assert_eq!(encoder.header(&frame), Err(error));
    }
    assert_eq!(out, [1, 2, 3]);

    let frame = Frame::Call(call());
    let mut short = [9; 68];
    assert_eq!(encoder.write(&frame, &mut short), Err(EncodeError::BufferTooSmall { needed: 69, available: 68 }));
    assert_eq!(short, [9; 68]);
    let mut long = [9; 70];
    assert_eq!(encoder.write(&frame, &mut long), Ok(69));
    assert_eq!(long[..69], encoded(&frame));
    assert_eq!(long[69], 9);
    assert_eq!(encoder.header(&frame).unwrap(), long[..64]);
}

#[test]
fn controller_feedback_is_encoded_unchanged() {
    let feedback = Feedback {
        window: leeward_core::units::Credits(u32::MAX),
        threshold: Priority::HIGHEST,
        custom: u64::MAX,
        credit: leeward_core::units::CreditId(u64::MAX),
    };
    for feedback in [Feedback::NONE, feedback] {
        let answer = leeward_wire::Answer { feedback, sojourn: Nanos32::saturating(Nanos::MAX), ..answer() };
        let bytes = encoded(&Frame::Response(Response { answer, payload: b"" }));
        let Ok(DecodeStatus::Frame { frame: Frame::Response(response), .. }) = decoded(&bytes, Side::Server) else {
            panic!("no response");
        };
        assert_eq!(response.answer, answer);
        assert_eq!(response.answer.sojourn.nanos(), Nanos(u64::from(u32::MAX)));
    }
    let unlimited = encoded(&Frame::Call(Call { budget: Budget::UNLIMITED, ..call() }));
    assert_eq!(unlimited[52..56], [0; 4]);
}

#[test]
fn memory_is_given_back_only_between_frames() {
    let bytes = encoded(&Frame::Call(call()));
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    assert_eq!(decoder.capacity(), 0);
    decoder.spare()[..10].copy_from_slice(&bytes[..10]);
    decoder.advance(10);
    assert!(!decoder.release());
    assert_eq!(decoder.next_frame(), Ok(None));
    decoder.spare()[..59].copy_from_slice(&bytes[10..]);
    decoder.advance(59);
    assert_eq!(decoder.next_frame(), Ok(Some(Frame::Call(call()))));
    assert!(decoder.release());
    assert_eq!(decoder.capacity(), 0);
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(!decoder.spare().is_empty());
}

#[test]
#[should_panic(expected = "more bytes than there was room for")]
fn advancing_past_the_buffer_panics() {
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    let available = decoder.spare().len();
    decoder.advance(available + 1);
}
