//! Numbers and texts of the format: a cursor that never reads beyond its bytes, and the functions
//! that write them.

use thiserror::Error;

use super::TEXT_MAX;

/// Reason why a payload can't be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end inside a field.
    #[error("it ends inside a field")]
    Short,
    /// A varint has more than 64 bits.
    #[error("a number has more than 64 bits")]
    Varint,
    /// A length or count exceeds its limit.
    #[error("a length is above its bound")]
    Length,
    /// An unknown kind of event.
    #[error("event of unknown kind {0}")]
    Kind(u8),
    /// A mark that is invalid for the kind.
    #[error("event of kind {0} with marks it does not have")]
    Marks(u8),
    /// An unknown code in a field.
    #[error("unknown code {0}")]
    Code(u8),
    /// An empty slot of the table of pairs.
    #[error("it names a pair that was not written before")]
    Slot,
    /// Excess bytes follow the last event.
    #[error("bytes are left over")]
    TrailingBytes,
}

/// The top bit of each byte.
pub(super) const TOPS: u64 = 0x8080_8080_8080_8080;

/// Joins four groups of seven bits to one number, in each half.
#[inline(always)]
pub(super) fn joined_halves(bytes: u64) -> u64 {
    let bits = bytes & !TOPS;
    let pairs = (bits & 0x007F_007F_007F_007F) | ((bits & 0x7F00_7F00_7F00_7F00) >> 1);
    (pairs & 0x0000_3FFF_0000_3FFF) | ((pairs & 0x3FFF_0000_3FFF_0000) >> 2)
}

/// Joins eight groups of seven bits to one number.
#[inline(always)]
fn joined(bytes: u64) -> u64 {
    let halves = joined_halves(bytes);
    (halves & 0x0FFF_FFFF) | ((halves & 0x0FFF_FFFF_0000_0000) >> 4)
}

/// Returns the difference that a signed varint represents, modulo 2⁶⁴.
#[inline(always)]
pub(super) fn difference(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Reads fields one after another.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes }
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the next `count` bytes.
    ///
    /// # Errors
    /// [`FormatError::Short`], like all following methods.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(FormatError::Short)?;
        self.bytes = rest;
        Ok(head)
    }

    /// Returns the next eight bytes as a number, the first one lowest, without consuming them.
    #[inline(always)]
    pub(super) fn word(&self) -> Option<u64> {
        self.bytes.first_chunk().map(|head| u64::from_le_bytes(*head))
    }

    /// Skips bytes that were already examined.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: usize) {
        self.bytes = self.bytes.get(count..).unwrap_or_default();
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// See [`Cursor::take`].
    // Here and below: a larger error type would be returned through memory, three to six times per
    // event.
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        let (&first, rest) = self.bytes.split_first().ok_or(FormatError::Short)?;
        self.bytes = rest;
        Ok(first)
    }

    /// Reads four bytes, little-endian.
    ///
    /// # Errors
    /// See [`Cursor::take`].
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or(FormatError::Short)?;
        self.bytes = rest;
        Ok(u32::from_le_bytes(*head))
    }

    /// Reads eight bytes, little-endian.
    ///
    /// # Errors
    /// See [`Cursor::take`].
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or(FormatError::Short)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*head))
    }

    /// Reads a varint.
    ///
    /// # Errors
    /// [`FormatError::Varint`] for more than 64 bits; see also [`Cursor::take`].
    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, FormatError> {
        if let Some(head) = self.bytes.first_chunk() {
            let word = u64::from_le_bytes(*head);
            // The first byte with a clear top bit is the last one. The length is hard to predict,
            // so no branch depends on it.
            let ends = !word & TOPS;
            if ends != 0 {
                let bits = ends.trailing_zeros();
                self.bytes = &self.bytes[(bits / 8 + 1) as usize..];
                return Ok(joined(word & (u64::MAX >> (63 - bits))));
            }
        }
        self.long_varint()
    }

    /// Reads a varint that is longer than eight bytes, or near the end.
    #[cold]
    fn long_varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return Err(FormatError::Varint);
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(FormatError::Varint)
    }

    /// Reads a signed difference and adds it to `base` modulo 2⁶⁴.
    ///
    /// # Errors
    /// See [`Cursor::varint`].
    #[inline(always)]
    pub fn signed(&mut self, base: u64) -> Result<u64, FormatError> {
        Ok(base.wrapping_add(difference(self.varint()?)))
    }

    /// Reads two signed differences and adds them to `first` and `second` modulo 2⁶⁴.
    ///
    /// # Errors
    /// See [`Cursor::varint`].
    #[inline(always)]
    pub(super) fn two_signed(&mut self, first: u64, second: u64) -> Result<(u64, u64), FormatError> {
        if let Some(word) = self.word() {
            let ends = !word & TOPS;
            let less = ends.wrapping_sub(1);
            let later_ends = ends & less;
            if later_ends != 0 {
                // Both are in the word; each mask covers all bits up to the lowest set bit.
                let more = later_ends ^ later_ends.wrapping_sub(1);
                self.skip((later_ends.trailing_zeros() / 8 + 1) as usize);
                let parts = (word & (ends ^ less), (word & more) >> ((ends.trailing_zeros() + 1) % 64));
                let (one, other) = (difference(joined(parts.0)), difference(joined(parts.1)));
                return Ok((first.wrapping_add(one), second.wrapping_add(other)));
            }
        }
        Ok((self.signed(first)?, self.signed(second)?))
    }

    /// Reads a varint of at most `most`.
    ///
    /// # Errors
    /// [`FormatError::Length`] for a greater number; see also [`Cursor::varint`].
    pub fn bounded(&mut self, most: usize) -> Result<usize, FormatError> {
        usize::try_from(self.varint()?).ok().filter(|value| *value <= most).ok_or(FormatError::Length)
    }

    /// Reads a text; invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// [`FormatError::Length`] for a text that is too long; see also [`Cursor::varint`].
    pub fn text(&mut self) -> Result<String, FormatError> {
        let length = self.bounded(TEXT_MAX)?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the signed difference `value` − `base` modulo 2⁶⁴.
pub fn put_signed(out: &mut Vec<u8>, value: u64, base: u64) {
    let difference = value.wrapping_sub(base) as i64;
    put_varint(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Appends a text, cut at [`TEXT_MAX`] bytes.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)];
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, bits in 0_u32..64, base: u64, text in ".{0,40}") {
            let mut bytes = Vec::new();
            // Covers all lengths.
            let value = value >> bits;
            put_varint(&mut bytes, value);
            put_signed(&mut bytes, value, base);
            put_text(&mut bytes, &text);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varint(), Ok(value));
            prop_assert_eq!(cursor.signed(base), Ok(value));
            prop_assert_eq!(cursor.text(), Ok(text));
            prop_assert!(cursor.is_empty());
            // Reading two at once equals reading one after the other, also near the end.
            for length in 0..bytes.len() {
                let (mut one, mut both) = (Cursor::new(&bytes[..length]), Cursor::new(&bytes[..length]));
                let expected = one.signed(base).and_then(|first| Ok((first, one.signed(value)?)));
                prop_assert_eq!(both.two_signed(base, value), expected);
                if expected.is_ok() {
                    prop_assert_eq!(both.bytes.len(), one.bytes.len());
                }
            }
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        let check = |bytes: &[u8], expected| assert_eq!(Cursor::new(bytes).varint(), expected);
        check(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], Ok(u64::MAX));
        check(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02], Err(FormatError::Varint));
        check(&[0x80; 12], Err(FormatError::Varint));
        check(&[0x80], Err(FormatError::Short));
        check(&[], Err(FormatError::Short));
    }
}
