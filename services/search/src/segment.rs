//! A segment: an inverted index of documents that came one after another. Everything in it that changes is behind its one
//! lock, as in the Lucene of the thesis (§2.5.3); see `docs/search.md` for what that costs and why it is so here.

use super::decoded_cache::{DecodedCache, Occurrence};
use super::locks::Lock;
use super::postings::{LocalId, Posting, PostingList};
use super::query::MatchMode;
use super::ranking::MatchSet;
use super::score::Norm;
use super::terms::Scorer;
use std::collections::HashMap;
use std::sync::Arc;

/// Of a segment's postings, this part is held decoded.
const DECODED_PART: usize = 4;
/// And no less than this many.
const DECODED_LEAST: usize = 1 << 16;

/// How an index is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Segments of equal size that the first documents are put into (≥ 1). One is what a search engine's users make of an
    /// index that is loaded once; more of them spread the contention for their locks.
    pub segments: usize,
    /// Documents that come later fill segments of so many (≥ 1).
    pub seal_at: usize,
    /// So many segments of the same magnitude become one (≥ 2).
    pub merge_factor: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { segments: 1, seal_at: 1_000, merge_factor: 10 }
    }
}

/// Documents that came one after another.
pub(super) struct Segment {
    /// The number of the first.
    pub(super) first: u32,
    pub(super) data: Lock<SegmentData>,
}

impl Segment {
    pub(super) fn new(first: u32, data: SegmentData) -> Arc<Self> {
        Arc::new(Segment { first, data: Lock::new("search.segment", data) })
    }
}

/// A document's words as the index needs them: how often each is in it, by alphabet, and how many there are in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TermCounts {
    pub(super) words: Vec<(Box<str>, u32)>,
    pub(super) length: u32,
}

impl TermCounts {
    /// Of a text, in several parts.
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

/// From a term to the number of its list.
#[derive(Debug)]
enum Dictionary {
    /// Grows.
    Open(HashMap<Box<str>, u32>),
    /// Sorted: looked up by bisection. The lists have the same order.
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
    /// Empty and open.
    pub(super) fn new() -> Self {
        SegmentData {
            dictionary: Dictionary::Open(HashMap::new()),
            lists: Vec::new(),
            norms: Vec::new(),
            postings: 0,
            decoded: DecodedCache::new(DECODED_LEAST),
        }
    }

    /// Documents in it.
    pub(super) fn documents(&self) -> usize {
        self.norms.len()
    }

    /// Appends a document. A sealed segment takes none.
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

    /// Sorts the dictionary; no more documents then.
    pub(super) fn seal(&mut self) {
        let Dictionary::Open(dictionary) = &mut self.dictionary else { return };
        let mut terms: Vec<(Box<str>, u32)> = std::mem::take(dictionary).into_iter().collect();
        terms.sort_unstable();
        self.lists = terms.iter().map(|(_, list)| std::mem::take(&mut self.lists[*list as usize])).collect();
        self.dictionary = Dictionary::Sealed(terms.into_iter().map(|(term, _)| term).collect());
        self.decoded = DecodedCache::new((self.postings / DECODED_PART).max(DECODED_LEAST));
    }

    /// Leaves in `fitting` the documents that fit `words`, with their scores.
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

    /// The terms and lists of a sealed segment from number `from` on, up to `count`.
    pub(super) fn part(&self, from: usize, count: usize) -> Vec<(Box<str>, PostingList)> {
        let Dictionary::Sealed(terms) = &self.dictionary else { return Vec::new() };
        terms.iter().zip(&self.lists).skip(from).take(count).map(|(term, list)| (term.clone(), list.clone())).collect()
    }

    /// The documents' lengths.
    pub(super) fn norms(&self) -> &[Norm] {
        &self.norms
    }

    /// A sealed segment out of parts.
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
