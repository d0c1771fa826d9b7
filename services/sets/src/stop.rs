//! Stop words: words in so many documents that they distinguish none.

use crate::data::Documents;
use std::collections::{HashMap, HashSet};

/// Reciprocal of the share of documents above which a word is a stop word: one in ten.
const SHARE: u32 = 10;
/// Number of sampled documents, spread over all: enough to estimate a tenth within a thousandth.
const SAMPLE_SIZE: u32 = 100_000;

/// Words that are removed from queries.
#[derive(Clone, Debug, Default)]
pub struct StopWords {
    words: HashSet<Box<str>>,
}

impl StopWords {
    /// Finds the stop words of these documents, from a sample of at most `SAMPLE_SIZE`.
    pub fn build(data: &Documents) -> Self {
        let count = data.count();
        let sampled = count.min(SAMPLE_SIZE);
        let mut seen: HashMap<Box<str>, (u32, u32)> = HashMap::new();
        for index in 0..sampled {
            let number = (u64::from(index) * u64::from(count) / u64::from(sampled)) as u32;
            data.words(number..number + 1, |number, word| match seen.get_mut(word) {
                Some((last, _)) if *last == number => {}
                Some((last, documents)) => (*last, *documents) = (number, *documents + 1),
                None => _ = seen.insert(word.into(), (number, 1)),
            });
        }
        let is_frequent = |documents: u32| u64::from(documents) * u64::from(SHARE) > u64::from(sampled);
        let words = seen.into_iter().filter(|(_, (_, documents))| is_frequent(*documents)).map(|(word, _)| word);
        StopWords { words: words.collect() }
    }

    /// Returns the number of stop words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no stop words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns whether `word` is a stop word.
    pub fn contains(&self, word: &[u8]) -> bool {
        std::str::from_utf8(word).is_ok_and(|word| self.words.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::name;

    #[test]
    fn the_most_frequent_words_of_synthetic_documents_are_stop_words() {
        let stop = StopWords::build(&Documents::Synthetic { count: 5_000, words: 30, seed: 1 });
        assert!(stop.contains(name(1).as_bytes()) && stop.contains(name(10).as_bytes()));
        assert!(!stop.contains(name(100).as_bytes()) && !stop.contains(b"") && !stop.contains(&[0xff]));
        // With 30 words, a document has one of rank r with probability 1 - (1 - ln(1 + 1/r) / ln
        // 100,001)^30: a tenth at about 25.
        assert!((20..32).contains(&stop.len()), "{}", stop.len());
    }
}
