//! The header's bytes, and the offsets of a frame's fields that a link reads or changes.

use crate::harness::{call, register, response};
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;
use leeward_datagram::frame::{self, Feedback};
use leeward_datagram::header::{Header, Kind, LEN};
use leeward_wire::{DecodeStatus, Frame, Kind as FrameKind, PayloadLimit, Side, decode};
use proptest::prelude::*;

fn frame_of(bytes: &[u8], from: Side) -> Frame<'_> {
    match decode(bytes, from, PayloadLimit::DEFAULT) {
        Ok(DecodeStatus::Frame { frame, length }) if length == bytes.len() => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frame_fields_are_read_at_the_encoders_offsets() {
    let call = call(0x1_0000_0002, b"abc");
    assert_eq!(frame::length(&call), Some(67));
    assert!(frame::is_whole(&call) && !frame::is_whole(&call[..66]));
    assert_eq!(frame::kind(&call), Some(FrameKind::Call));
    assert_eq!(frame::request(&call), 0x1_0000_0002);
    let mut register = register();
    frame::limit_payload(&mut register, DatagramSize::DEFAULT.payload() as u32);
    let Frame::Register(registered) = frame_of(&register, Side::Client) else { panic!("no registration") };
    assert_eq!(registered.payload_max.bytes() as usize, DatagramSize::DEFAULT.payload());
    let answer = response(5);
    let feedback = Feedback::of(&answer).unwrap();
    let mut other = response(6);
    other[44] = 99;
    let Frame::Response(response) = frame_of(&other, Side::Server) else { panic!("no response") };
    assert_eq!(response.answer.feedback.window.0, 99, "the window's place");
    feedback.write_to(&mut other);
    assert_eq!(Feedback::of(&other), Some(feedback));
    assert_eq!(Feedback::of(&call), None);
}

#[test]
fn waiting_time_reduces_only_a_limited_budget() {
    let budget = |bytes: &[u8]| match frame_of(bytes, Side::Client) {
        Frame::Call(call) => call.budget.remaining(),
        _ => None,
    };
    let mut unlimited = call(1, b"");
    frame::charge(&mut unlimited, Nanos(100));
    assert_eq!(budget(&unlimited), None);
    let mut limited = call(1, b"");
    limited[52..56].copy_from_slice(&500_u32.to_le_bytes());
    frame::charge(&mut limited, Nanos(100));
    assert_eq!(budget(&limited), Some(Nanos(400)));
    frame::charge(&mut limited, Nanos(1 << 40));
    assert_eq!(budget(&limited), Some(Nanos(1)), "used up, and not unlimited");
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(
        kind in 0..Kind::ALL.len(), mark: [u8; 4], slot: u32, ack: u32, key: u64, number: u64, order: u64,
        frame in prop::collection::vec(any::<u8>(), 0..DatagramSize::DEFAULT.bytes() - LEN)
    ) {
        let header = Header { kind: Kind::ALL[kind], mark, slot, ack, key, number, order };
        let mut datagram = Vec::new();
        header.write(&frame, &mut datagram);
        prop_assert_eq!(Header::read(&datagram), Some((header, &frame[..])));
        prop_assert_eq!(Header::read(&datagram[..LEN - 1]), None);
    }
}
