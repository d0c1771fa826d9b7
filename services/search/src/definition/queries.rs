//! Client queries to a search service: words drawn by their frequency in the documents.
//!
//! Frequent words are most popular, as with the papers' clients (thesis §2.5.3, Hoover §6). The
//! caller supplies the words.

use leeward_core::units::{UnitError, parse_number};
use leeward_workload::rng::Rng;
use std::fmt::{self, Display, Formatter};

/// Parameters of the queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryMix {
    /// Least number of words in a query (≥ 1); the number is uniform up to `most_words`.
    pub least_words: u32,
    /// Greatest number of words in a query. A word that is drawn twice counts once.
    pub most_words: u32,
    /// Greatest share of documents that a word may occur in; more frequent words are treated as
    /// stop words.
    ///
    /// 1 accepts all words. The papers exclude stop words; today's search engines keep them.
    pub common: f64,
    /// Documents must have all words, not only one.
    pub all: bool,
    /// Number of requested results (≥ 1).
    pub results: u16,
}

impl Default for QueryMix {
    fn default() -> Self {
        QueryMix { least_words: 1, most_words: 4, common: 1.0, all: false, results: 10 }
    }
}

const EXPECTED: &str = "queries such as `search`, `search:words=1-4`, `search:words=2,common=0.1,match=all,results=10` \
    (words: 1 to 16; common: the largest share of documents with a word that is asked for; match: any, all; results: 1 to 100)";

impl QueryMix {
    /// Parses `search`, or `search:` and any of `words=1-4`, `common=0.1`, `match=any`,
    /// `results=10`, separated by commas.
    ///
    /// # Errors
    /// Any other text.
    ///
    /// ```
    /// use leeward_search::definition::QueryMix;
    ///
    /// let mix = QueryMix::parse("search:words=2-3,match=all")?;
    /// assert_eq!((mix.least_words, mix.most_words, mix.all, mix.results), (2, 3, true, 10));
    /// # Ok::<(), leeward_core::units::UnitError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let fail = || UnitError { written: text.chars().take(60).collect(), expected: EXPECTED };
        let mut mix = QueryMix::default();
        let pairs = match text.strip_prefix("search") {
            Some("") => return Ok(mix),
            Some(rest) => rest.strip_prefix(':').ok_or_else(fail)?,
            None => return Err(fail()),
        };
        for pair in pairs.split(',') {
            let (name, value) = pair.split_once('=').ok_or_else(fail)?;
            let count = |text: &str, most: u32| {
                let number = text.parse().ok().filter(|number| (1..=most).contains(number));
                number.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(fail)
            };
            match name {
                "words" => {
                    let (least, most) = value.split_once('-').unwrap_or((value, value));
                    (mix.least_words, mix.most_words) = (count(least, 16)?, count(most, 16)?);
                }
                "common" => mix.common = parse_number(value).map_err(|_| fail())?,
                "match" => mix.all = ["any", "all"].iter().position(|known| *known == value).ok_or_else(fail)? == 1,
                "results" => mix.results = count(value, 100)? as u16,
                _ => return Err(fail()),
            }
        }
        let possible = mix.least_words <= mix.most_words && mix.common > 0.0 && mix.common <= 1.0;
        if possible { Ok(mix) } else { Err(fail()) }
    }
}

impl Display for QueryMix {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let QueryMix { least_words, most_words, common, all, results } = self;
        let matching = if *all { "all" } else { "any" };
        write!(f, "search:words={least_words}-{most_words},common={common},match={matching},results={results}")
    }
}

/// A word of the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordFrequency {
    /// The word.
    pub text: Box<str>,
    /// Number of documents with the word.
    pub documents: u32,
    /// Number of occurrences, which is the word's weight in queries.
    pub occurrences: u64,
}

/// Draws queries.
#[derive(Clone, Debug)]
pub struct QueryGenerator {
    mix: QueryMix,
    words: Vec<Box<str>>,
    /// Cumulative occurrences of the words.
    sums: Vec<u64>,
}

impl QueryGenerator {
    /// Creates a generator for a collection of `documents` documents; `None` if `mix` excludes
    /// every word.
    pub fn new(mix: QueryMix, vocabulary: impl IntoIterator<Item = WordFrequency>, documents: u32) -> Option<Self> {
        let most = mix.common * f64::from(documents);
        let mut queries = QueryGenerator { mix, words: Vec::new(), sums: Vec::new() };
        let mut sum = 0u64;
        for word in vocabulary {
            if f64::from(word.documents) <= most && word.occurrences > 0 {
                sum = sum.saturating_add(word.occurrences);
                queries.words.push(word.text);
                queries.sums.push(sum);
            }
        }
        (!queries.words.is_empty()).then_some(queries)
    }

    /// Returns the parameters.
    pub fn mix(&self) -> &QueryMix {
        &self.mix
    }

    /// Appends the words of a query to `into`, separated by blanks.
    pub fn draw(&self, rng: &mut Rng, into: &mut String) {
        let QueryMix { least_words, most_words, .. } = self.mix;
        let count = u64::from(least_words) + rng.below(u64::from(most_words - least_words) + 1);
        let all = self.sums.last().copied().unwrap_or(0);
        for number in 0..count {
            let position = rng.below(all);
            let index = self.sums.partition_point(|sum| *sum <= position);
            if number > 0 {
                into.push(' ');
            }
            into.push_str(&self.words[index]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_workload::rng::Purpose;

    fn word(text: &str, documents: u32, occurrences: u64) -> WordFrequency {
        WordFrequency { text: text.into(), documents, occurrences }
    }

    #[test]
    fn query_mixes_round_trip() {
        for text in ["search", "search:words=3", "search:words=2-16,common=0.25,match=all,results=100"] {
            let mix = QueryMix::parse(text).unwrap();
            assert_eq!(QueryMix::parse(&mix.to_string()), Ok(mix));
        }
        for text in [
            "",
            "find",
            "searching",
            "search:",
            "search:words",
            "search:words=0",
            "search:words=4-2",
            "search:words=17",
            "search:words=+1",
            "search:common=0",
            "search:common=1.5",
            "search:match=some",
            "search:results=101",
            "search:results=",
            "search:words=1-4,",
        ] {
            assert!(QueryMix::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn query_words_follow_their_frequency() {
        let vocabulary = [word("the", 9, 600), word("sea", 5, 300), word("keel", 1, 100)];
        let mix = QueryMix { most_words: 1, ..QueryMix::default() };
        let queries = QueryGenerator::new(mix, vocabulary.clone(), 10).unwrap();
        let mut rng = Rng::new(1, Purpose::Service);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            let mut query = String::new();
            queries.draw(&mut rng, &mut query);
            counts[vocabulary.iter().position(|word| *word.text == query).unwrap()] += 1;
        }
        for (counted, expected) in counts.into_iter().zip([6_000.0, 3_000.0, 1_000.0]) {
            assert!((f64::from(counted) / expected - 1.0).abs() < 0.1, "{counts:?}");
        }
    }

    #[test]
    fn common_words_can_be_excluded_and_query_lengths_are_uniform() {
        let mix = QueryMix { common: 0.5, least_words: 2, most_words: 3, ..QueryMix::default() };
        let queries = QueryGenerator::new(mix, [word("the", 9, 1_000_000), word("sea", 5, 1)], 10).unwrap();
        let mut rng = Rng::new(1, Purpose::Service);
        let mut longer = 0;
        for _ in 0..1_000 {
            let mut query = String::new();
            queries.draw(&mut rng, &mut query);
            assert!(query == "sea sea" || query == "sea sea sea", "{query}");
            longer += u32::from(query.len() > 7);
        }
        assert!((400..600).contains(&longer), "{longer}");
        assert!(QueryGenerator::new(mix, [word("the", 9, 1)], 10).is_none());
    }
}
