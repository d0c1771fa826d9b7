//! Arguments and results as bytes, little-endian.
//!
//! The mid-tier's results begin with two bytes: the number of leaves that it asked, and the number
//! of those that answered. A result is complete if both are equal.

use leeward_rpc::server::HandlerError;
use leeward_rpc::wire::Method;

/// `get`: the argument is a key. The result is one byte, 1 and then the value, or 0 for a missing
/// key.
pub const GET: Method = Method(0);
/// `set`: two bytes with the key's length, the key, the value.
///
/// A leaf's result is one byte, 1. The mid-tier's result is the number of leaves that have stored
/// the pair.
pub const SET: Method = Method(1);
/// Length of the longest key in bytes: memcached's.
pub const KEY_MAX: usize = leeward_kv::store::KEY_MAX;

/// A `set`'s argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Pair<'a> {
    /// Parses an argument.
    ///
    /// # Errors
    /// The argument is cut short, or the key is invalid.
    pub fn read(argument: &'a [u8]) -> Result<Self, HandlerError> {
        let cut =
            || HandlerError::Message("a set without its key: two bytes with its length, the key, the value".into());
        let (length, rest) = argument.split_first_chunk::<2>().ok_or_else(cut)?;
        let (key, value) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(cut)?;
        Ok(Pair { key: check(key)?, value })
    }

    /// Appends the argument. A key of more than 65,535 bytes is cut off; [`check`] rejects it
    /// anyway.
    pub fn append(&self, out: &mut Vec<u8>) {
        let length = u16::try_from(self.key.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.key[..length.into()]);
        out.extend_from_slice(self.value);
    }
}

/// Checks that `key` is valid.
///
/// # Errors
/// The key is empty, or longer than [`KEY_MAX`].
pub fn check(key: &[u8]) -> Result<&[u8], HandlerError> {
    match key.len() {
        1..=KEY_MAX => Ok(key),
        length => Err(HandlerError::Message(format!("a key of {length} bytes; accepted: 1 to {KEY_MAX}"))),
    }
}

/// A mid-tier's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierResult<'a> {
    /// Number of leaves that were asked.
    pub asked: u8,
    /// Number of those leaves that answered.
    pub answered: u8,
    /// Result of the method.
    pub rest: &'a [u8],
}

impl<'a> TierResult<'a> {
    /// Parses a result; `None` if it is cut short.
    pub fn read(result: &'a [u8]) -> Option<Self> {
        let ([asked, answered], rest) = result.split_first_chunk()?;
        Some(TierResult { asked: *asked, answered: *answered, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(key in prop::collection::vec(any::<u8>(), 1..=KEY_MAX), value: Vec<u8>) {
            let mut argument = Vec::new();
            let pair = Pair { key: &key, value: &value };
            pair.append(&mut argument);
            prop_assert_eq!(Pair::read(&argument), Ok(pair));
        }

        #[test]
        fn any_bytes_are_parsed_or_rejected(argument: Vec<u8>) {
            if let Ok(pair) = Pair::read(&argument) {
                prop_assert_eq!(2 + pair.key.len() + pair.value.len(), argument.len());
            }
        }
    }

    #[test]
    fn a_too_long_key_is_rejected_with_a_message() {
        let argument = [&[0xff, 0xff][..], &[b'k'; 65_536]].concat();
        assert_eq!(
            Pair::read(&argument),
            Err(HandlerError::Message(format!("a key of 65535 bytes; accepted: 1 to {KEY_MAX}")))
        );
        assert!(Pair::read(&[1]).is_err() && Pair::read(&[0, 0]).is_err());
    }
}
