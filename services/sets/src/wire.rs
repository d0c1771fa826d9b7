//! Arguments and results as bytes, little-endian. Reading copies nothing.

use leeward_rpc::server::HandlerError;
use leeward_rpc::wire::Method;

/// The method `all`.
///
/// - Argument: a byte with the number of words, and for each a byte with its length and the word.
/// - Result: the number of documents with all of them (4 bytes), and the first of their numbers (4
///   each), ascending.
/// - The mid-tier's result begins with two bytes: the number of leaves that it asked, and the
///   number of those that answered.
pub const ALL: Method = Method(0);
/// Greatest number of document numbers in a leaf's or mid-tier's result.
pub const RESULT_MAX: usize = 8_192;

/// Reads the words of an argument.
///
/// # Errors
/// A word is cut short or empty, or bytes follow the last one.
pub fn read_words(argument: &[u8]) -> Result<impl Iterator<Item = &[u8]> + Clone, HandlerError> {
    let error = |message: &str| Err(HandlerError::Message(message.into()));
    let Some((count, words)) = argument.split_first() else { return error("no word count") };
    let mut rest = words;
    for _ in 0..*count {
        match split_word(rest) {
            None => return error("a word that is cut short"),
            Some(([], _)) => return error("an empty word"),
            Some((_, after)) => rest = after,
        }
    }
    if !rest.is_empty() {
        let unit = if rest.len() == 1 { "byte" } else { "bytes" };
        return Err(HandlerError::Message(format!("{} {unit} after the last word", rest.len())));
    }
    Ok(Words(words))
}

fn split_word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[derive(Clone)]
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (word, rest) = split_word(self.0)?;
        self.0 = rest;
        Some(word)
    }
}

/// Appends an argument with up to 255 words; skips empty words and those with more than 255 bytes.
pub fn append_words<'a>(words: impl Iterator<Item = &'a [u8]> + Clone, out: &mut Vec<u8>) {
    let words = words.filter(|word| (1..=255).contains(&word.len())).take(255);
    out.push(words.clone().count() as u8);
    for word in words {
        out.push(word.len() as u8);
        out.extend_from_slice(word);
    }
}

/// Appends a result: `total` documents, starting with `ids`, of which the first [`RESULT_MAX`] are
/// kept.
pub fn append_result(total: u32, ids: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&total.to_le_bytes());
    out.extend(ids.iter().take(RESULT_MAX).flat_map(|id| id.to_le_bytes()));
}

/// Matching documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchResult<'a> {
    /// Number of matching documents.
    pub total: u32,
    /// The first of their numbers, ascending.
    pub ids: &'a [[u8; 4]],
}

impl<'a> SearchResult<'a> {
    /// Reads a result; `None` if the bytes are malformed.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (total, ids) = bytes.split_first_chunk()?;
        let (ids, []) = ids.as_chunks() else { return None };
        let total = u32::from_le_bytes(*total);
        let ascends = ids.is_sorted_by(|a, b| u32::from_le_bytes(*a) < u32::from_le_bytes(*b));
        (ids.len() == RESULT_MAX.min(total as usize) && ascends).then_some(SearchResult { total, ids })
    }

    /// Iterates over the numbers.
    pub fn ids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ids.iter().map(|id| u32::from_le_bytes(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..20),
            ids in prop::collection::btree_set(any::<u32>(), 0..50),
        ) {
            let mut argument = Vec::new();
            append_words(words.iter().map(Vec::as_slice), &mut argument);
            prop_assert!(read_words(&argument).unwrap().eq(words.iter().map(Vec::as_slice)));
            let ids: Vec<u32> = ids.into_iter().collect();
            let mut result = Vec::new();
            append_result(ids.len() as u32, &ids, &mut result);
            prop_assert!(SearchResult::read(&result).unwrap().ids().eq(ids));
        }

        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes: Vec<u8>) {
            if let Ok(words) = read_words(&bytes) {
                prop_assert_eq!(words.count(), usize::from(bytes[0]));
            }
            let _ = SearchResult::read(&bytes);
        }
    }

    #[test]
    fn invalid_queries_are_rejected_with_a_message() {
        let error = |argument: &[u8]| match read_words(argument).map(Iterator::count) {
            Err(HandlerError::Message(message)) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(error(&[]), "no word count");
        assert_eq!(error(&[2, 1, b'a']), "a word that is cut short");
        assert_eq!(error(&[1, 0]), "an empty word");
        assert_eq!(error(&[1, 1, b'a', b'b']), "1 byte after the last word");
    }
}
