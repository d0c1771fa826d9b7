//! Numbers, texts and parameters as bytes; checksums; and a reader that never goes beyond its end.

use leeward_core::params::RawParam;

const MAX_TEXT_LEN: usize = 200;
const MAX_PARAMS: u32 = 256;

/// Appends `value`, seven bits per byte, the lowest first (LEB128).
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number; small numbers of either sign are short.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a text with its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the set parameters and their number.
pub(super) fn put_params(params: &[(String, RawParam)], out: &mut Vec<u8>) {
    put(out, params.len() as u64);
    for (name, raw) in params {
        put_text(out, name);
        match raw {
            RawParam::Text(text) => {
                out.push(0);
                put_text(out, text);
            }
            RawParam::Number(number) => {
                out.push(1);
                out.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            RawParam::Integer(number) => {
                out.push(2);
                put_signed(out, *number);
            }
            RawParam::Switch(on) => out.extend_from_slice(&[3, u8::from(*on)]),
        }
    }
}

/// Defect found in bytes, in a few words.
pub(super) type DecodeError = &'static str;

/// Bytes being read.
#[derive(Clone, Debug)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
}

const TRUNCATED: DecodeError = "ends in the middle of a value";

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Bytes { rest: bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Reads eight bytes, little-endian.
    pub(super) fn word(&mut self) -> Result<u64, DecodeError> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Reads a number of [`put`].
    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is longer than 64 bits")
    }

    /// Reads a number of up to 32 bits.
    pub(super) fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| "a number is longer than 32 bits")
    }

    /// Reads a number of [`put_signed`].
    pub(super) fn signed(&mut self) -> Result<i64, DecodeError> {
        let bits = self.number()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    /// Reads a text of up to 200 bytes without control characters, since it will be displayed.
    pub(super) fn text(&mut self) -> Result<String, DecodeError> {
        let length = self.small()? as usize;
        if length > MAX_TEXT_LEN {
            return Err("a text is too long");
        }
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")?;
        if text.chars().any(char::is_control) {
            return Err("a text has control characters");
        }
        Ok(text.into())
    }

    /// Reads parameters of [`put_params`].
    pub(super) fn params(&mut self) -> Result<Vec<(String, RawParam)>, DecodeError> {
        let count = self.small()?;
        if count > MAX_PARAMS {
            return Err("too many parameters");
        }
        let mut params = Vec::new();
        for _ in 0..count {
            let name = self.text()?;
            let raw = match self.byte()? {
                0 => RawParam::Text(self.text()?),
                1 => RawParam::Number(f64::from_bits(self.word()?)),
                2 => RawParam::Integer(self.signed()?),
                3 => RawParam::Switch(self.byte()? != 0),
                _ => return Err("there is no such kind of parameter"),
            };
            params.push((name, raw));
        }
        Ok(params)
    }
}

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// Computes the CRC-32 of ISO 3309 (that of zip and PNG) over both parts.
pub(super) fn checksum(first: &[u8], second: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !second.iter().fold(first.iter().fold(u32::MAX, step), step)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_matches_the_standard_test_vector() {
        assert_eq!(checksum(b"12345", b"6789"), 0xCBF4_3926);
    }

    #[test]
    fn overlong_numbers_are_rejected() {
        assert!(Bytes::new(&[0xff; 11]).number().is_err());
        assert!(Bytes::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
        assert!(Bytes::new(&[0x80]).number().is_err());
    }

    proptest! {
        #[test]
        fn numbers_round_trip(value: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, signed);
            let mut bytes = Bytes::new(&out);
            prop_assert_eq!(bytes.number(), Ok(value));
            prop_assert_eq!(bytes.signed(), Ok(signed));
            prop_assert_eq!(bytes.remaining(), 0);
        }
    }
}
