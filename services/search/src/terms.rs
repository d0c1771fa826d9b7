//! Terms of all segments: the number of documents with each term, and its scores.
//!
//! Each term has a lock, like Lucene's per-term scores (thesis §2.5.3).

use super::locks::{Lock, Refused};
use super::score::{Collection, Norm, Score, ScoreTable, Weight};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Number of documents from which a term gets a table of its scores: 4 KiB, at most 8 bytes per
/// posting.
const TABLE_FROM: u64 = 512;

/// Scores a term's occurrences, for one query.
#[derive(Clone)]
pub(super) enum Scorer {
    Plain(Weight),
    Table(Arc<ScoreTable>),
}

impl Scorer {
    #[inline]
    pub(super) fn score(&self, count: u32, norm: Norm) -> Score {
        match self {
            Scorer::Plain(weight) => weight.score(count, norm),
            Scorer::Table(table) => table.score(count, norm),
        }
    }
}

/// A term.
pub(super) struct Term {
    /// Number of documents with the term.
    documents: AtomicU64,
    /// Number of occurrences.
    occurrences: AtomicU64,
    /// Scores for the current collection. Rebuilding them takes some microseconds, under the lock.
    scores: Lock<Option<Scores>>,
}

/// Data that a term's lock guards.
struct Scores {
    collection: Collection,
    documents: u64,
    table: Arc<ScoreTable>,
}

impl Term {
    fn new(documents: u64, occurrences: u64) -> Self {
        let (documents, occurrences) = (AtomicU64::new(documents), AtomicU64::new(occurrences));
        Term { documents, occurrences, scores: Lock::new("search.term", None) }
    }

    /// Returns the number of documents with the term.
    pub(super) fn documents(&self) -> u64 {
        self.documents.load(Ordering::Relaxed)
    }

    /// Returns a scorer for the given collection.
    ///
    /// # Errors
    /// The request's budget does not suffice for the lock.
    pub(super) async fn scorer(&self, collection: Collection) -> Result<Scorer, Refused> {
        let mut scores = self.scores.lock_unless_congested().await?;
        let documents = self.documents();
        let weight = Weight::new(collection, documents);
        if documents < TABLE_FROM {
            return Ok(Scorer::Plain(weight));
        }
        let known = scores.as_ref().filter(|known| (known.collection, known.documents) == (collection, documents));
        if let Some(known) = known {
            return Ok(Scorer::Table(Arc::clone(&known.table)));
        }
        let table = Arc::new(ScoreTable::new(weight));
        *scores = Some(Scores { collection, documents, table: Arc::clone(&table) });
        Ok(Scorer::Table(table))
    }
}

/// All terms. The map only grows; it is locked for a lookup or an insertion, never across a wait.
#[derive(Default)]
pub(super) struct Terms(RwLock<HashMap<Box<str>, Arc<Term>>>);

impl Terms {
    /// Creates the terms from word, number of documents and number of occurrences.
    pub(super) fn from_counts(counts: impl IntoIterator<Item = (Box<str>, u64, u64)>) -> Self {
        let term = |(word, documents, occurrences)| (word, Arc::new(Term::new(documents, occurrences)));
        Terms(RwLock::new(counts.into_iter().map(term).collect()))
    }

    /// Returns the term, if any document has it.
    pub(super) fn find(&self, word: &str) -> Option<Arc<Term>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
    }

    /// Returns the number of different terms.
    pub(super) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Counts a document that has the word `count` times.
    pub(super) fn add(&self, word: &str, count: u32) {
        let term = self.find(word).unwrap_or_else(|| {
            let mut terms = self.0.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(terms.entry(word.into()).or_insert_with(|| Arc::new(Term::new(0, 0))))
        });
        term.documents.fetch_add(1, Ordering::Relaxed);
        term.occurrences.fetch_add(count.into(), Ordering::Relaxed);
    }
}
