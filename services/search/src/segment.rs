//! A segment: an inverted index of consecutive documents.
//!
//! One lock guards all of its mutable state, as in the thesis's Lucene (§2.5.3); `docs/search.md`
//! explains the cost and the reason.

use super::decoded_cache::{DecodedCache, Occurrence};
use super::locks::Lock;
use super::postings::{LocalId, Posting, PostingList};
use super::query::MatchMode;
use super::ranking::MatchSet;
use super::score::Norm;
use super::terms::Scorer;
use std::collections::HashMap;
use std::sync::Arc;

/// Reciprocal of the share of postings that is kept decoded.
const DECODED_PART: usize = 4;
/// Least number of postings that are kept decoded.
const DECODED_LEAST: usize = 1 << 16;

/// Division of an index into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of equal segments for the initial documents (≥ 1).
    ///
    /// 1 corresponds to an index that a search engine's user loads once; more segments spread the
    /// contention for their locks.
    pub segments: usize,
    /// Number of later documents per segment (≥ 1).
    pub seal_at: usize,
    /// Number of segments of equal magnitude that are merged into one (≥ 2).
    pub merge_factor: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { segments: 1, seal_at: 1_000, merge_factor: 10 }
    }
}

/// Consecutive documents.
pub(super) struct Segment {
    /// Number of the first document.
    pub(super) first: u32,
    pub(super) data: Lock<SegmentData>,
}

impl Segment {
    pub(super) fn new(first: u32, data: SegmentData) -> Arc<Self> {
        Arc::new(Segment { first, data: Lock::new("search.segment", data) })
    }
}

/// A document's words: the count of each, in alphabetic order, and the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TermCounts {
    pub(super) words: Vec<(Box<str>, u32)>,
    pub(super) length: u32,
}

impl TermCounts {
    /// Counts the words of a text in several parts.
    pub(super) fn count<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut words: Vec<Box<str>> = Vec::new();
        texts.into_iter().for_each(|text| super::token::words(text, |word| words.push(word.into())));
        let length = u32::try_from(words.len()).unwrap_or(u32::MAX);
        words.sort_unstable();
        let mut counted: Vec<(Box<str>, u32)> = Vec::new();
        for word in words {
            match counted.last_mut() {
                Some((last, count)) if *last == word => *count += 1,
                _ => counted.push((word, 1)),
            }
        }
        TermCounts { words: counted, length }
    }
}

/// Maps a term to the number of its list.
#[derive(Debug)]
enum Dictionary {
    /// Still growing.
    Open(HashMap<Box<str>, u32>),
    /// Sorted for binary search. The lists have the same order.
    Sealed(Vec<Box<str>>),
}

impl Dictionary {
    fn find(&self, term: &str) -> Option<u32> {
        match self {
            Dictionary::Open(terms) => terms.get(term).copied(),
            Dictionary::Sealed(terms) => terms.binary_search_by(|known| (**known).cmp(term)).ok().map(|at| at as u32),
        }
    }
}

/// Data that a segment's lock guards.
#[derive(Debug)]
pub(super) struct SegmentData {
    dictionary: Dictionary,
    lists: Vec<PostingList>,
    norms: Vec<Norm>,
    postings: usize,
    decoded: DecodedCache,
}

impl SegmentData {
    /// Creates an empty, open segment.
    pub(super) fn new() -> Self {
        SegmentData {
            dictionary: Dictionary::Open(HashMap::new()),
            lists: Vec::new(),
            norms: Vec::new(),
            postings: 0,
            decoded: DecodedCache::new(DECODED_LEAST),
        }
    }

    /// Returns the number of documents.
    pub(super) fn documents(&self) -> usize {
        self.norms.len()
    }

    /// Appends a document. A sealed segment ignores it.
    pub(super) fn push(&mut self, document: &TermCounts) {
        let Dictionary::Open(dictionary) = &mut self.dictionary else {
            debug_assert!(false, "a sealed segment takes no document");
            return;
        };
        let local = self.norms.len() as LocalId;
        for (term, count) in &document.words {
            let next = self.lists.len() as u32;
            let list = *dictionary.entry(term.clone()).or_insert(next);
            if list == next {
                self.lists.push(PostingList::default());
            } else {
                self.decoded.invalidate(list);
            }
            self.lists[list as usize].push(Posting { document: local, count: *count });
        }
        self.postings += document.words.len();
        self.norms.push(Norm::from_words(document.length));
    }

    /// Sorts the dictionary; afterwards no documents can be added.
    pub(super) fn seal(&mut self) {
        let Dictionary::Open(dictionary) = &mut self.dictionary else { return };
        let mut terms: Vec<(Box<str>, u32)> = std::mem::take(dictionary).into_iter().collect();
        terms.sort_unstable();
        self.lists = terms.iter().map(|(_, list)| std::mem::take(&mut self.lists[*list as usize])).collect();
        self.dictionary = Dictionary::Sealed(terms.into_iter().map(|(term, _)| term).collect());
        self.decoded = DecodedCache::new((self.postings / DECODED_PART).max(DECODED_LEAST));
    }

    /// Fills `fitting` with the documents that match `words`, and their scores.
    pub(super) fn search(&mut self, words: &[(&str, Scorer)], matching: MatchMode, fitting: &mut MatchSet) {
        fitting.clear();
        for (term, scorer) in words {
            let Some(list) = self.dictionary.find(term) else {
                if matching == MatchMode::All {
                    return fitting.clear();
                }
                continue;
            };
            let (compressed, norms) = (&self.lists[list as usize], &self.norms);
            let occurrences = self.decoded.get(list, || decode(compressed, norms));
            let scored = |at: &Occurrence| (at.document, scorer.score(at.count, at.norm));
            fitting.add(matching, occurrences.iter().map(scored));
            if matching == MatchMode::All && fitting.documents().is_empty() {
                return;
            }
        }
    }

    /// Returns up to `count` terms and lists of a sealed segment, starting at number `from`.
    pub(super) fn part(&self, from: usize, count: usize) -> Vec<(Box<str>, PostingList)> {
        let Dictionary::Sealed(terms) = &self.dictionary else { return Vec::new() };
        terms.iter().zip(&self.lists).skip(from).take(count).map(|(term, list)| (term.clone(), list.clone())).collect()
    }

    /// Returns the documents' lengths.
    pub(super) fn norms(&self) -> &[Norm] {
        &self.norms
    }

    /// Assembles a sealed segment.
    pub(super) fn assemble(terms: Vec<(Box<str>, PostingList)>, norms: Vec<Norm>) -> Self {
        let postings = terms.iter().map(|(_, list)| list.len()).sum::<usize>();
        let (terms, lists) = terms.into_iter().unzip();
        let decoded = DecodedCache::new((postings / DECODED_PART).max(DECODED_LEAST));
        SegmentData { dictionary: Dictionary::Sealed(terms), lists, norms, postings, decoded }
    }
}

fn decode(list: &PostingList, norms: &[Norm]) -> Vec<Occurrence> {
    let mut occurrences = Vec::with_capacity(list.len());
    occurrences.extend(list.iter().map(|Posting { document, count }| Occurrence {
        document,
        count,
        norm: norms.get(document as usize).copied().unwrap_or(Norm(0)),
    }));
    occurrences
}
