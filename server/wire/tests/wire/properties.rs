//! Properties of the wire format on random frames, random bytes and damaged streams. Encoded frames
//! decode to the same frames with every split. No input makes the decoder panic, loop, or hold more
//! than the limit. Accepted bytes are canonical.

use crate::support::{DecodeOutcome, OwnedFrame, call, decode_chunks, encoded_in, frames, sides};
use leeward_wire::{Call, DecodeStatus, Decoder, Frame, HEADER_LEN, PayloadLimit, RequestId, Side, Version, decode};
use proptest::prelude::*;

fn stream(frames: &[OwnedFrame]) -> Vec<u8> {
    frames.iter().flat_map(|owned| encoded_in(Version::Two, &owned.frame())).collect()
}

fn streams() -> impl Strategy<Value = (Side, Vec<OwnedFrame>)> {
    sides().prop_flat_map(|from| (Just(from), prop::collection::vec(frames(from), 0..8)))
}

fn chunks() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![1]),
        prop::collection::vec(1..200_usize, 1..20),
        prop::collection::vec(1..5_000_usize, 1..5),
    ]
}

/// Damage to a stream, of the kinds with which format fuzzers find most defects.
#[derive(Clone, Debug)]
enum Damage {
    Flip {
        at: prop::sample::Index,
        bit: u8,
    },
    Set {
        at: prop::sample::Index,
        to: u8,
    },
    /// Sets one byte of the first header.
    Header {
        at: usize,
        to: u8,
    },
    Remove {
        at: prop::sample::Index,
        count: usize,
    },
    Insert {
        at: prop::sample::Index,
        bytes: Vec<u8>,
    },
    Cut {
        at: prop::sample::Index,
    },
    Double {
        at: prop::sample::Index,
    },
}

fn damages() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let byte = || prop_oneof![Just(0), Just(1), Just(128), Just(129), Just(255), any::<u8>()];
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        (at(), byte()).prop_map(|(at, to)| Damage::Set { at, to }),
        (0..HEADER_LEN, byte()).prop_map(|(at, to)| Damage::Header { at, to }),
        (at(), 1..100_usize).prop_map(|(at, count)| Damage::Remove { at, count }),
        (at(), prop::collection::vec(any::<u8>(), 1..100)).prop_map(|(at, bytes)| Damage::Insert { at, bytes }),
        at().prop_map(|at| Damage::Cut { at }),
        at().prop_map(|at| Damage::Double { at }),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    match damage {
        Damage::Flip { at, bit } => bytes[at.index(length)] ^= 1 << bit,
        Damage::Set { at, to } => bytes[at.index(length)] = *to,
        Damage::Header { at, to } => bytes[(*at).min(length - 1)] = *to,
        Damage::Remove { at, count } => drop(bytes.drain(at.index(length)..length.min(at.index(length) + count))),
        Damage::Insert { at, bytes: more } => drop(bytes.splice(at.index(length)..at.index(length), more.clone())),
        Damage::Cut { at } => bytes.truncate(at.index(length)),
        Damage::Double { at } => bytes.extend_from_within(at.index(length)..),
    }
}

/// Applies `decode` repeatedly to the whole of `bytes`: the expected result for every split.
fn oracle(bytes: &[u8], from: Side, limit: PayloadLimit) -> DecodeOutcome {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    loop {
        match decode(rest, from, limit) {
            Ok(DecodeStatus::Frame { length, .. }) => {
                frames.push(rest[..length].to_vec());
                rest = &rest[length..];
            }
            Ok(DecodeStatus::Incomplete { needed }) => {
                assert!(needed > rest.len() && needed <= HEADER_LEN + limit.bytes() as usize);
                let mut end = Decoder::new(from, limit);
                // The error at the end has a byte count, which a decoder computes.
                let mut left = rest;
                while !left.is_empty() {
                    let spare = end.spare();
                    let count = spare.len().min(left.len());
                    spare[..count].copy_from_slice(&left[..count]);
                    end.advance(count);
                    assert_eq!(end.next_frame(), Ok(None));
                    left = &left[count..];
                }
                return DecodeOutcome { frames, end: end.finish() };
            }
            Err(error) => return DecodeOutcome { frames, end: Err(error) },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_round_trip((from, frames) in streams()) {
        for owned in &frames {
            let frame = owned.frame();
            let bytes = encoded_in(Version::Two, &frame);
            let decoded = decode(&bytes, from, PayloadLimit::DEFAULT);
            prop_assert_eq!(decoded, Ok(DecodeStatus::Frame { frame, length: bytes.len() }));
            for cut in [0, 1, 7, 8, 63, 64, bytes.len() - 1] {
                if cut < bytes.len() {
                    let decoded = decode(&bytes[..cut], from, PayloadLimit::DEFAULT);
                    let missing = cut + 1..=bytes.len();
                    let incomplete =
                        matches!(decoded, Ok(DecodeStatus::Incomplete { needed }) if missing.contains(&needed));
                    prop_assert!(incomplete, "{:?} of {} bytes", decoded, cut);
                }
            }
        }
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_frames((from, frames) in streams(), chunks in chunks()) {
        let bytes = stream(&frames);
        let expected = DecodeOutcome { frames: frames.iter().map(|owned| encoded_in(Version::Two, &owned.frame())).collect(), end: Ok(()) };
        prop_assert_eq!(decode_chunks(&bytes, &chunks, from, PayloadLimit::DEFAULT), expected);
    }

    #[test]
    fn damage_gives_the_same_result_for_any_split(
        (from, frames) in streams(),
        damages in prop::collection::vec(damages(), 1..4),
        chunks in chunks(),
        limit in prop_oneof![Just(PayloadLimit::MIN), Just(PayloadLimit::DEFAULT)],
    ) {
        let mut bytes = stream(&frames);
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        let outcome = decode_chunks(&bytes, &chunks, from, limit);
        // Canonical: accepted frames encode to the received bytes.
        let accepted = outcome.frames.concat();
        prop_assert_eq!(&accepted[..], &bytes[..accepted.len()]);
        prop_assert_eq!(outcome, oracle(&bytes, from, limit));
    }

    #[test]
    fn any_bytes_decode_without_panic(from in sides(), bytes in prop::collection::vec(any::<u8>(), 0..300), chunks in chunks()) {
        let outcome = decode_chunks(&bytes, &chunks, from, PayloadLimit::MIN);
        prop_assert_eq!(outcome, oracle(&bytes, from, PayloadLimit::MIN));
    }

    #[test]
    fn any_header_after_a_valid_prefix_decodes_without_panic(
        from in sides(),
        kind in 1..=12_u8,
        length in prop_oneof![Just(0), 0..2_000_u32, any::<u32>()],
        rest in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 56..400),
    ) {
        let mut bytes = vec![b'L', b'W', 1, kind];
        bytes.extend(length.to_le_bytes());
        bytes.extend(rest);
        let outcome = decode_chunks(&bytes, &[], from, PayloadLimit::MIN);
        prop_assert_eq!(outcome, oracle(&bytes, from, PayloadLimit::MIN));
    }

    /// The decoder finds the frames after a skipped one, for every split of the stream, and the
    /// skipped frame takes no memory.
    #[test]
    fn a_skipped_frame_does_not_hide_later_ones(
        lengths in prop::collection::vec(0..200_000_usize, 1..6),
        chunks in prop::collection::vec(1..30_000_usize, 1..20),
    ) {
        let named = |number: u64, length| {
            let request = RequestId::new(number + 1).unwrap();
            (request, encoded_in(Version::Two, &Frame::Call(Call { request, payload: &vec![0; length], ..call() })))
        };
        let frames: Vec<_> = (0..).zip(&lengths).map(|(number, length)| named(number, *length)).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
        let (mut rest, mut chunks, mut seen) = (&bytes[..], chunks.iter().cycle(), Vec::new());
        while !rest.is_empty() {
            let spare = decoder.spare();
            let count = chunks.next().map_or(1, |chunk| *chunk).min(spare.len()).min(rest.len());
            spare[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            decoder.advance(count);
            loop {
                match decoder.next_frame().unwrap() {
                    Some(Frame::Call(call)) => seen.push(call.request),
                    Some(_) => prop_assert!(false),
                    None => break,
                }
            }
            let partial = match decoder.partial_frame() {
                Some(Frame::Call(call)) => Some(call.request),
                _ => None,
            };
            if let Some(request) = partial {
                seen.push(request);
                decoder.skip();
            }
            prop_assert!(decoder.capacity() <= 16 * 1024);
        }
        prop_assert_eq!(decoder.next_frame().unwrap(), None);
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert_eq!(seen, frames.iter().map(|(request, _)| *request).collect::<Vec<_>>());
    }

    /// A caller that doesn't take all frames between reads still gets all of them.
    #[test]
    fn a_caller_that_drains_late_loses_no_frame((from, frames) in streams(), chunk in 1..5_000_usize, frames_per_read in 1..3_usize) {
        let bytes = stream(&frames);
        let mut decoder = Decoder::new(from, PayloadLimit::DEFAULT);
        let (mut rest, mut got) = (&bytes[..], Vec::new());
        loop {
            let spare = decoder.spare();
            let count = spare.len().min(rest.len()).min(chunk);
            spare[..count].copy_from_slice(&rest[..count]);
            decoder.advance(count);
            rest = &rest[count..];
            let mut waits = false;
            for _ in 0..frames_per_read {
                match decoder.next_frame().unwrap() {
                    Some(frame) => got.extend(encoded_in(Version::Two, &frame)),
                    None => waits = true,
                }
            }
            if waits && rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(got, bytes);
    }
}
