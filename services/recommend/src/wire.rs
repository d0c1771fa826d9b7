//! Arguments and results as bytes, little-endian.

use leeward_rpc::server::HandlerError;
use leeward_rpc::wire::Method;

/// The method `predict`.
///
/// - Argument: a user and an item, four bytes each.
/// - A leaf's result: a byte, 1 if it knows both and otherwise 0, and the rating, a 32-bit float.
/// - The mid-tier's result begins with two more bytes: the number of leaves that it asked, and the
///   number of those that answered.
pub const PREDICT: Method = Method(0);

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The user.
    pub user: u32,
    /// The item.
    pub item: u32,
}

impl Query {
    /// Reads an argument.
    ///
    /// # Errors
    /// The argument has another length.
    pub fn read(argument: &[u8]) -> Result<Self, HandlerError> {
        match argument.as_chunks::<4>() {
            ([user, item], []) => Ok(Query { user: u32::from_le_bytes(*user), item: u32::from_le_bytes(*item) }),
            _ => {
                Err(HandlerError::Message(format!("{} bytes; accepted: 4 of a user and 4 of an item", argument.len())))
            }
        }
    }

    /// Appends the argument.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.user.to_le_bytes());
        out.extend_from_slice(&self.item.to_le_bytes());
    }
}

/// Appends a prediction.
pub fn append(prediction: Option<f32>, out: &mut Vec<u8>) {
    out.push(prediction.is_some().into());
    out.extend_from_slice(&prediction.unwrap_or(0.0).to_le_bytes());
}

/// Reads a prediction; the outer option is `None` if the bytes are malformed.
pub fn read(bytes: &[u8]) -> Option<Option<f32>> {
    let ([known, rating @ ..], []) = bytes.split_first_chunk::<5>()? else { return None };
    let rating = f32::from_le_bytes(*rating);
    match known {
        0 => Some(None),
        1 if rating.is_finite() => Some(Some(rating)),
        _ => None,
    }
}

/// A mid-tier's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierResult {
    /// Number of leaves that were asked.
    pub asked: u8,
    /// Number of those leaves that answered.
    pub answered: u8,
    /// Mean prediction of the leaves that know both.
    pub prediction: Option<f32>,
}

impl TierResult {
    /// Reads a result; `None` if the bytes are malformed.
    pub fn read(result: &[u8]) -> Option<Self> {
        let ([asked, answered], rest) = result.split_first_chunk()?;
        Some(TierResult { asked: *asked, answered: *answered, prediction: read(rest)? })
    }

    /// Appends the result.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.asked, self.answered]);
        append(self.prediction, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(user: u32, item: u32, asked: u8, answered: u8, rating in prop::option::of(-9f32..9.0)) {
            let (mut argument, mut result) = (Vec::new(), Vec::new());
            Query { user, item }.append(&mut argument);
            prop_assert_eq!(Query::read(&argument), Ok(Query { user, item }));
            let result_value = TierResult { asked, answered, prediction: rating };
            result_value.append(&mut result);
            prop_assert_eq!(TierResult::read(&result), Some(result_value));
        }

        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes: Vec<u8>) {
            let _ = Query::read(&bytes);
            if let Some(TierResult { prediction: Some(rating), .. }) = TierResult::read(&bytes) {
                prop_assert!(rating.is_finite());
            }
        }
    }
}
