//! The usual event: a head, two numbers, perhaps one byte more, all within eight bytes. They are taken apart out of one word, because
//! that is several times as quick as field by field. Which events these are, and all others, is the decoder's business.

use super::varint::{TOPS, difference, joined_halves};

/// A byte and two numbers of up to 28 bits each, out of eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortEvent {
    word: u64,
    /// The first number in the lower half, the second in the upper.
    numbers: u64,
    /// Bits up to the end of the second number.
    bits: u32,
}

impl ShortEvent {
    /// Looks at the next eight bytes, the first one lowest. `None` unless both numbers end before the last of them, and are small.
    #[inline(always)]
    pub(super) fn parse(word: u64) -> Option<ShortEvent> {
        // The top bit of the last byte of each number, the head's left out.
        let ends = !word & TOPS & !0xFF;
        let less = ends.wrapping_sub(1);
        let behind = ends & less;
        // Each mask reaches up to the lowest bit that is set.
        let first = (word & (ends ^ less)) >> 8;
        let second = (word & (behind ^ behind.wrapping_sub(1))) >> ((ends.trailing_zeros() + 1) % 64);
        if behind & (u64::MAX >> 8) == 0 || (first | second) >> 32 != 0 {
            return None;
        }
        Some(ShortEvent { word, numbers: joined_halves(first | second << 32), bits: behind.trailing_zeros() + 1 })
    }

    /// The first number, a signed difference, added to `base` modulo 2⁶⁴.
    #[inline(always)]
    pub(super) fn first(self, base: u64) -> u64 {
        base.wrapping_add(difference(self.numbers & 0xFFFF_FFFF))
    }

    /// The second number.
    #[inline(always)]
    pub(super) fn second(self) -> u64 {
        self.numbers >> 32
    }

    /// The byte behind both numbers.
    #[inline(always)]
    pub(super) fn next_byte(self) -> u8 {
        (self.word >> self.bits) as u8
    }

    /// Bytes up to there.
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
        fn it_reads_what_a_cursor_reads(head: u8, number: u64, bits in 0_u32..64, other: u64, fewer in 0_u32..64, base: u64) {
            let mut bytes = vec![head];
            put_signed(&mut bytes, base.wrapping_add(number >> bits), base);
            let first = bytes.len() - 1;
            put_varint(&mut bytes, other >> fewer);
            let length = bytes.len();
            bytes.extend([0xA5; 8]);
            let word = bytes.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
            match ShortEvent::parse(word) {
                None => prop_assert!(length > 7 || first > 4 || length - first > 5),
                Some(usual) => {
                    let mut cursor = Cursor::new(&bytes[1..]);
                    prop_assert_eq!(Ok(usual.first(base)), cursor.signed(base));
                    prop_assert_eq!(Ok(usual.second()), cursor.varint());
                    prop_assert_eq!((usual.next_byte(), usual.length()), (0xA5, length));
                }
            }
        }
    }
}
