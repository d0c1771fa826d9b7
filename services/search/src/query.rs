//! A query: words, and whether a document must have any or all of them. No phrases, no operators.
//!
//! A query is untrusted input, so all sizes are bounded.

use super::token::words;

/// Length of the longest query, in bytes.
pub const QUERY_MAX: usize = 1_024;
/// Greatest number of different words in a query.
pub const WORDS_MAX: usize = 16;
/// Greatest number of results.
pub const RESULTS_MAX: usize = 100;

/// Condition for a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchMode {
    /// Documents with at least one of the words.
    #[default]
    Any,
    /// Documents with all of the words.
    All,
}

/// A query that can't be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Too many bytes.
    #[error("a query of {0} bytes; accepted: up to {QUERY_MAX}")]
    TooLong(usize),
    /// The query contains no word.
    #[error("no word in the query")]
    Empty,
    /// Too many different words.
    #[error("more than {WORDS_MAX} different words in the query")]
    TooManyWords,
    /// The number of results is out of range.
    #[error("{0} results; accepted: 1 to {RESULTS_MAX}")]
    Results(usize),
}

/// A query within the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    words: Vec<Box<str>>,
    mode: MatchMode,
    results: usize,
}

impl Query {
    /// Parses the words of `text`, each once, for the best `results` documents.
    ///
    /// # Errors
    /// See [`QueryError`].
    ///
    /// ```
    /// use leeward_search::query::{MatchMode, Query};
    ///
    /// let query = Query::parse("the Search of THE search", MatchMode::Any, 10)?;
    /// assert_eq!(query.words().collect::<Vec<_>>(), ["of", "search", "the"]);
    /// # Ok::<(), leeward_search::query::QueryError>(())
    /// ```
    pub fn parse(text: &str, matching: MatchMode, results: usize) -> Result<Self, QueryError> {
        if text.len() > QUERY_MAX {
            return Err(QueryError::TooLong(text.len()));
        }
        if !(1..=RESULTS_MAX).contains(&results) {
            return Err(QueryError::Results(results));
        }
        let mut found: Vec<Box<str>> = Vec::new();
        words(text, |word| found.push(word.into()));
        found.sort_unstable();
        found.dedup();
        match found.len() {
            0 => Err(QueryError::Empty),
            1..=WORDS_MAX => Ok(Query { words: found, mode: matching, results }),
            _ => Err(QueryError::TooManyWords),
        }
    }

    /// Iterates over the words, in alphabetic order.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.iter().map(|word| &**word)
    }

    /// Returns the condition for a match.
    pub fn mode(&self) -> MatchMode {
        self.mode
    }

    /// Returns the number of requested results.
    pub fn results(&self) -> usize {
        self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn query_limits_are_enforced() {
        let parse = |text: &str, results| Query::parse(text, MatchMode::All, results);
        let many = |count: usize| (0..count).map(|n| format!("w{n} ")).collect::<String>();
        assert!(parse(&many(WORDS_MAX), 1).is_ok());
        assert_eq!(parse(&many(WORDS_MAX + 1), 1), Err(QueryError::TooManyWords));
        assert_eq!(parse(" ,;", 1), Err(QueryError::Empty));
        assert_eq!(parse("a", 0), Err(QueryError::Results(0)));
        assert_eq!(parse("a", RESULTS_MAX + 1), Err(QueryError::Results(RESULTS_MAX + 1)));
        assert_eq!(parse(&"a ".repeat(QUERY_MAX), 1), Err(QueryError::TooLong(2 * QUERY_MAX)));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}", results in 0usize..200) {
            if let Ok(query) = Query::parse(&text, MatchMode::Any, results) {
                prop_assert!((1..=WORDS_MAX).contains(&query.words().len()));
            }
        }
    }
}
