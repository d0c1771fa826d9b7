//! The few fields of an encoded frame that a link reads or changes. Their offsets are those of
//! `docs/protocol.md`; a test compares them with the encoder.

use leeward_core::units::Nanos;
use leeward_wire::{HEADER_LEN, Kind};

const KIND: usize = 3;
const PAYLOAD_LEN: usize = 4;
const REQUEST: usize = 8;
const CREDIT: std::ops::Range<usize> = 24..40;
const PAYLOAD_MAX: usize = 40;
const WINDOW: std::ops::Range<usize> = 44..48;
const BUDGET: usize = 52;
const THRESHOLD: usize = 61;

/// Length of the whole frame at the beginning of `bytes`; `None` if a part is missing.
#[inline]
pub fn length(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < HEADER_LEN {
        return None;
    }
    let length = HEADER_LEN + read_u32(bytes, PAYLOAD_LEN) as usize;
    (length <= bytes.len()).then_some(length)
}

/// Kind of a frame; `None` for an unknown kind or a missing header.
#[inline]
pub fn kind(frame: &[u8]) -> Option<Kind> {
    frame.get(..HEADER_LEN).and_then(|head| Kind::from_number(head[KIND]))
}

/// Whether these bytes are exactly one frame.
#[inline]
pub fn is_whole(bytes: &[u8]) -> bool {
    length(bytes) == Some(bytes.len())
}

/// Identifier of the call that the frame makes, answers or cancels.
#[inline]
pub fn request(frame: &[u8]) -> u64 {
    u64::from(read_u32(frame, REQUEST)) | u64::from(read_u32(frame, REQUEST + 4)) << 32
}

/// Whether this kind answers a call.
#[inline]
pub fn is_answer(kind: Kind) -> bool {
    matches!(kind, Kind::Response | Kind::Drop | Kind::Failure)
}

/// Lowers the longest payload that a `Register` or a `Welcome` announces.
pub fn limit_payload(frame: &mut [u8], max: u32) {
    let limit = read_u32(frame, PAYLOAD_MAX).min(max);
    frame[PAYLOAD_MAX..PAYLOAD_MAX + 4].copy_from_slice(&limit.to_le_bytes());
}

/// Subtracts a wait from a call's queueing budget. A limited budget stays limited: at least 1 ns
/// remains.
pub fn charge(frame: &mut [u8], waited: Nanos) {
    let budget = read_u32(frame, BUDGET);
    if budget > 0 && budget < u32::MAX {
        let left = u64::from(budget).saturating_sub(waited.0).max(1) as u32;
        frame[BUDGET..BUDGET + 4].copy_from_slice(&left.to_le_bytes());
    }
}

/// The fields of a frame that carry a session's window, as sent last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    credit: [u8; 16],
    window: [u8; 4],
    threshold: u8,
}

impl Feedback {
    /// The fields of a frame that carries a window; `None` for other frames.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let has_window =
            kind(frame).is_some_and(|kind| is_answer(kind) || matches!(kind, Kind::Welcome | Kind::Credit));
        has_window.then(|| Feedback {
            credit: std::array::from_fn(|index| frame[CREDIT.start + index]),
            window: std::array::from_fn(|index| frame[WINDOW.start + index]),
            threshold: frame[THRESHOLD],
        })
    }

    /// Replaces an older window in a frame by this one.
    pub fn write_to(&self, frame: &mut [u8]) {
        frame[CREDIT].copy_from_slice(&self.credit);
        frame[WINDOW].copy_from_slice(&self.window);
        frame[THRESHOLD] = self.threshold;
    }
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
