//! The fast path for the usual event: a head, two numbers and perhaps one more byte, all within
//! eight bytes.
//!
//! The parser extracts them from one word, which is several times as fast as parsing field by
//! field. Does not contain the choice of events for this path; the decoder makes it.

use super::varint::{TOPS, difference, joined_halves};

/// A byte and two numbers of up to 28 bits each, from eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortEvent {
    word: u64,
    /// The first number in the lower half, the second in the upper.
    numbers: u64,
    /// Bits up to the end of the second number.
    bits: u32,
}

impl ShortEvent {
    /// Parses the next eight bytes, the first one lowest.
    ///
    /// Returns `None` unless both numbers end before the last byte, and are small.
    #[inline(always)]
    pub(super) fn parse(word: u64) -> Option<ShortEvent> {
        // The top bit of the last byte of each number, without the head's.
        let ends = !word & TOPS & !0xFF;
        let less = ends.wrapping_sub(1);
        let later_ends = ends & less;
        // Each mask covers all bits up to the lowest set bit.
        let first = (word & (ends ^ less)) >> 8;
        let second = (word & (later_ends ^ later_ends.wrapping_sub(1))) >> ((ends.trailing_zeros() + 1) % 64);
        if later_ends & (u64::MAX >> 8) == 0 || (first | second) >> 32 != 0 {
            return None;
        }
        Some(ShortEvent { word, numbers: joined_halves(first | second << 32), bits: later_ends.trailing_zeros() + 1 })
    }

    /// Returns the first number, a signed difference, added to `base` modulo 2⁶⁴.
    #[inline(always)]
    pub(super) fn first(self, base: u64) -> u64 {
        base.wrapping_add(difference(self.numbers & 0xFFFF_FFFF))
    }

    /// Returns the second number.
    #[inline(always)]
    pub(super) fn second(self) -> u64 {
        self.numbers >> 32
    }

    /// Returns the byte after both numbers.
    #[inline(always)]
    pub(super) fn next_byte(self) -> u8 {
        (self.word >> self.bits) as u8
    }

    /// Returns the number of bytes up to the end of both numbers.
    #[inline(always)]
    pub(super) fn length(self) -> usize {
        (self.bits / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::varint::{Cursor, put_signed, put_varint};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_short_event_reads_like_a_cursor(head: u8, number: u64, bits in 0_u32..64, other: u64, fewer in 0_u32..64, base: u64) {
            let mut bytes = vec![head];
            put_signed(&mut bytes, base.wrapping_add(number >> bits), base);
            let first = bytes.len() - 1;
            put_varint(&mut bytes, other >> fewer);
            let length = bytes.len();
            bytes.extend([0xA5; 8]);
            let word = bytes.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
            match ShortEvent::parse(word) {
                None => prop_assert!(length > 7 || first > 4 || length - first > 5),
                Some(short) => {
                    let mut cursor = Cursor::new(&bytes[1..]);
                    prop_assert_eq!(Ok(short.first(base)), cursor.signed(base));
                    prop_assert_eq!(Ok(short.second()), cursor.varint());
                    prop_assert_eq!((short.next_byte(), short.length()), (0xA5, length));
                }
            }
        }
    }
}
