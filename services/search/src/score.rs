//! Relevance of a document for a query: BM25 in fixed point.
//!
//! Fixed-point sums don't depend on the order of their terms, so the division into segments does
//! not change results.

use std::ops::AddAssign;

/// BM25's k₁ and b, as in nearly every search engine.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A score in steps of 2⁻¹⁶.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(pub u32);

impl Score {
    fn of(value: f64) -> Self {
        Score((value * 65_536.0).round() as u32)
    }

    /// Returns the score as a number.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 65_536.0
    }
}

impl AddAssign for Score {
    fn add_assign(&mut self, other: Score) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// A document's length in a byte: exact below 32 words, eight steps per doubling above, rounded
/// down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Norm(pub(super) u8);

/// Number of values of a [`Norm`].
const NORMS: usize = 256;

impl Norm {
    /// Returns the norm of a document with this number of words.
    pub(super) fn from_words(words: u32) -> Self {
        if words < 32 {
            return Norm(words as u8);
        }
        let power = words.ilog2();
        Norm((32 + (power - 5) * 8 + ((words >> (power - 3)) & 7)) as u8)
    }

    /// Returns the length that represents all lengths with this norm.
    pub(super) fn words(self) -> u64 {
        let value = u64::from(self.0);
        if value < 32 {
            return value;
        }
        let (power, step) = (5 + (value - 32) / 8, (value - 32) % 8);
        (8 + step) << (power - 3)
    }
}

/// Statistics of the collection for BM25.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// Number of documents.
    pub documents: u64,
    /// Number of words in all documents.
    pub words: u64,
}

/// Weight of a term's presence in a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    /// Inverse document frequency: ln(1 + (N − n + ½) / (n + ½)), never negative.
    idf: f64,
    mean_length: f64,
}

impl Weight {
    /// Returns the weight of a term that `containing` documents of the collection have.
    pub(super) fn new(collection: Collection, containing: u64) -> Self {
        let (all, containing) = (collection.documents.max(containing) as f64, containing as f64);
        Weight {
            idf: (1.0 + (all - containing + 0.5) / (containing + 0.5)).ln(),
            mean_length: (collection.words as f64 / all.max(1.0)).max(1.0),
        }
    }

    /// Scores a document with `count` occurrences and this length.
    pub(super) fn score(&self, count: u32, norm: Norm) -> Score {
        let count = f64::from(count);
        let length = norm.words() as f64 / self.mean_length;
        Score::of(self.idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length)))
    }
}

/// Counts for which a [`ScoreTable`] has scores.
const COUNTS: usize = 4;

/// A term's scores for the usual counts and all lengths; worth building for long lists.
pub(super) struct ScoreTable {
    weight: Weight,
    scores: Box<[[Score; NORMS]; COUNTS]>,
}

impl ScoreTable {
    pub(super) fn new(weight: Weight) -> Self {
        let row = |count: usize| std::array::from_fn(|norm| weight.score(count as u32 + 1, Norm(norm as u8)));
        ScoreTable { weight, scores: Box::new(std::array::from_fn(row)) }
    }

    /// Returns the same score as [`Weight::score`].
    pub(super) fn score(&self, count: u32, norm: Norm) -> Score {
        match self.scores.get((count as usize).wrapping_sub(1)) {
            Some(row) => row[usize::from(norm.0)],
            None => self.weight.score(count, norm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_to_within_an_eighth() {
        let mut last = 0;
        for words in (0..5_000).chain([u32::MAX / 2, u32::MAX]) {
            let norm = Norm::from_words(words);
            let back = norm.words();
            assert!(back <= u64::from(words) && u64::from(words) < back + (back / 8).max(1), "{words}: {back}");
            assert!(norm.0 >= last);
            last = norm.0;
        }
        assert_eq!(Norm::from_words(u32::MAX).0, 247);
    }

    #[test]
    fn rare_terms_high_counts_and_short_documents_score_higher() {
        let collection = Collection { documents: 1_000, words: 50_000 };
        let score =
            |containing, count, words| Weight::new(collection, containing).score(count, Norm::from_words(words));
        assert!(score(1, 1, 50) > score(10, 1, 50));
        assert!(score(10, 2, 50) > score(10, 1, 50));
        assert!(score(10, 1, 20) > score(10, 1, 50));
        assert!(
            score(1_000, 1, 50) > Score(0),
            "a term that is everywhere is worth little, and never less than nothing"
        );
        // A document was added in between: more documents have the term than the collection
        // contains.
        assert!(score(2_000, 1, 50) >= Score(0));
    }

    #[test]
    fn scores_follow_the_textbook_formula() {
        // N = 100, n = 10, tf = 3, the document has mean length: ln(1 + 90.5/10.5) · 3 · 2.2 / (3 +
        // 1.2).
        let score = Weight::new(Collection { documents: 100, words: 2_000 }, 10).score(3, Norm::from_words(20));
        assert!((score.value() - 3.557_3).abs() < 1e-3, "{}", score.value());
    }

    #[test]
    fn the_score_table_matches_the_formula() {
        let weight = Weight::new(Collection { documents: 777, words: 33_333 }, 55);
        let table = ScoreTable::new(weight);
        for count in [1, 2, 3, 4, 5, 100, u32::MAX] {
            for norm in 0..=u8::MAX {
                assert_eq!(table.score(count, Norm(norm)), weight.score(count, Norm(norm)));
            }
        }
    }
}
