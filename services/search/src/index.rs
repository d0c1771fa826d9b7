//! The index: segments, terms and titles. Searches run while documents are added.
//!
//! These locks guard it. A search never holds two of them at once, so searches need no lock order.
//!
//! - `search.segment`, one per segment: its posting lists, dictionary and decoded lists. Held while
//!   a segment is searched.
//! - `search.term`, one per term: the table of the term's scores. Held while a search fetches the
//!   table, or rebuilds it.
//! - `search.writer`: the right to add; taken before a segment's lock. Held through sealing and
//!   merging.
//!
//! Does not contain the handling of requests (`service`) or the source of texts (`corpus`).

use super::locks::{Lock, Refused};
use super::merge::{is_merge_due, merge};
use super::query::{MatchMode, Query};
use super::ranking::{MatchSet, TopHits};
use super::score::{Collection, Score};
use super::segment::{Layout, Segment, SegmentData, TermCounts};
use super::terms::{Scorer, Terms};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Greatest number of documents in an index.
pub const DOCUMENTS_MAX: usize = 4_000_000;
/// Limits on all words and on different words together keep an index with open writes within some
/// gigabytes.
const WORDS_MAX: u64 = 400_000_000;
const TERMS_MAX: usize = 4_000_000;
/// Length of the longest title in bytes; longer titles are cut.
pub const TITLE_MAX: usize = 256;

/// A document to be indexed. Searches find its text, but the index does not keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Title of the document, shown in results. Its words count like the text's.
    pub title: String,
    /// Text of the document.
    pub text: String,
}

/// A matching document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The document's number; documents are numbered in order of addition, from 0.
    pub document: u32,
    /// The document's relevance.
    pub score: Score,
    /// The document's title.
    pub title: Arc<str>,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// Number of matching documents.
    pub matches: u64,
    /// The best documents, by score; among equals the earlier ones.
    pub hits: Vec<Hit>,
}

/// Reason why a document was not added; the index is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The request would have had to wait for too long.
    #[error("{0}")]
    Refused(Refused),
    /// The limit of documents, words or different words is reached.
    #[error("the index is full: it takes {DOCUMENTS_MAX} documents, {WORDS_MAX} words, {TERMS_MAX} different ones")]
    Full,
}

/// A term of the initial documents, with its frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyEntry {
    /// The term.
    pub term: Box<str>,
    /// Number of documents with the term.
    pub documents: u32,
    /// Number of occurrences.
    pub occurrences: u64,
}

/// Size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Number of documents.
    pub documents: u64,
    /// Number of words in all documents.
    pub words: u64,
    /// Number of different words.
    pub terms: u64,
    /// Number of segments, the open one included.
    pub segments: u64,
}

/// State for adding documents, under the writer's lock.
///
/// `sealed` has the full segments, with their numbers of documents.
struct Writer {
    sealed: Vec<(Arc<Segment>, usize)>,
    open: Arc<Segment>,
}

/// An inverted index over documents, safe to share.
///
/// ```
/// use leeward_search::{Document, Index, Layout, MatchMode, Query};
///
/// let document = |title: &str, text: &str| Document { title: title.into(), text: text.into() };
/// let documents = [document("tea", "A drink of leaves"), document("sail", "It drives a boat")];
/// let index = Index::build(documents, Layout::default());
/// let query = Query::parse("drink tea", MatchMode::Any, 10)?;
/// let found = pollster::block_on(index.search(&query))?;
/// assert_eq!(&*found.hits[0].title, "tea");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Index {
    layout: Layout,
    /// Segments that searches see. Locked only to copy or replace the reference, never across a
    /// wait.
    segments: RwLock<Arc<[Arc<Segment>]>>,
    terms: Terms,
    /// Titles by document.
    titles: RwLock<Vec<Arc<str>>>,
    collection: RwLock<Collection>,
    writer: Lock<Writer>,
    vocabulary: Arc<[VocabularyEntry]>,
    /// Number of documents behind the vocabulary.
    initial_documents: u32,
}

impl Index {
    /// Builds an index of `documents`, up to [`DOCUMENTS_MAX`] of them.
    pub fn build(documents: impl IntoIterator<Item = Document>, layout: Layout) -> Self {
        let layout = Layout {
            segments: layout.segments.max(1),
            seal_at: layout.seal_at.max(1),
            merge_factor: layout.merge_factor.max(2),
        };
        let mut titles: Vec<Arc<str>> = Vec::new();
        let mut collection = Collection::default();
        let mut counts: HashMap<Box<str>, (u32, u64)> = HashMap::new();
        let counted: Vec<TermCounts> = documents
            .into_iter()
            .take(DOCUMENTS_MAX)
            .map(|document| {
                let counted = TermCounts::count([document.title.as_str(), document.text.as_str()]);
                titles.push(title(&document.title));
                collection.documents += 1;
                collection.words += u64::from(counted.length);
                for (word, count) in &counted.words {
                    let known = counts.entry(word.clone()).or_default();
                    known.0 += 1;
                    known.1 += u64::from(*count);
                }
                counted
            })
            .collect();
        let mut vocabulary: Vec<VocabularyEntry> = counts
            .into_iter()
            .map(|(term, (documents, occurrences))| VocabularyEntry { term, documents, occurrences })
            .collect();
        vocabulary.sort_unstable_by(|a, b| b.occurrences.cmp(&a.occurrences).then_with(|| a.term.cmp(&b.term)));
        let share = counted.len().div_ceil(layout.segments).max(1);
        let sealed = counted.chunks(share).enumerate().map(|(number, part)| {
            let mut data = SegmentData::new();
            part.iter().for_each(|document| data.push(document));
            data.seal();
            (Segment::new((number * share) as u32, data), part.len())
        });
        let sealed: Vec<(Arc<Segment>, usize)> = sealed.collect();
        let open = Segment::new(titles.len() as u32, SegmentData::new());
        let writer = Writer { sealed, open };
        let terms = vocabulary.iter().map(|entry| (entry.term.clone(), entry.documents.into(), entry.occurrences));
        Index {
            layout,
            initial_documents: titles.len() as u32,
            segments: RwLock::new(writer.visible()),
            terms: Terms::from_counts(terms),
            titles: RwLock::new(titles),
            collection: RwLock::new(collection),
            writer: Lock::new("search.writer", writer),
            vocabulary: vocabulary.into(),
        }
    }

    /// Finds the best documents for `query`, completely or not at all.
    ///
    /// A document that is being added may be found or not. The scores are from the collection at
    /// the start of the search.
    ///
    /// # Errors
    /// The request's budget does not suffice for one of the locks.
    pub async fn search(&self, query: &Query) -> Result<SearchResult, Refused> {
        let collection = *self.collection.read().unwrap_or_else(PoisonError::into_inner);
        let mut words: Vec<(&str, Scorer)> = Vec::with_capacity(query.words().len());
        for word in query.words() {
            match self.terms.find(word) {
                Some(term) => words.push((word, term.scorer(collection).await?)),
                None if query.mode() == MatchMode::All => return Ok(SearchResult::default()),
                None => {}
            }
        }
        let mut top = TopHits::new(query.results());
        if !words.is_empty() {
            let segments = Arc::clone(&self.segments.read().unwrap_or_else(PoisonError::into_inner));
            for segment in segments.iter() {
                // Not kept for the next segment: thousands of requests may wait for that segment's
                // lock.
                let mut matches = MatchSet::default();
                segment.data.lock_unless_congested().await?.search(&words, query.mode(), &mut matches);
                top.add_segment(segment.first, &matches);
            }
        }
        let (matches, top) = top.finish();
        let titles = self.titles.read().unwrap_or_else(PoisonError::into_inner);
        let hit = |(document, score): (u32, Score)| {
            let title = titles.get(document as usize).map_or_else(|| Arc::from(""), Arc::clone);
            Hit { document, score, title }
        };
        Ok(SearchResult { matches, hits: top.into_iter().map(hit).collect() })
    }

    /// Adds a document and returns its number.
    ///
    /// Sometimes that includes merging segments, between which other tasks run. A caller that is
    /// cancelled while it waits has added nothing, or everything.
    ///
    /// # Errors
    /// See [`AddError`].
    pub async fn add(&self, document: &Document) -> Result<u32, AddError> {
        let counted = TermCounts::count([document.title.as_str(), document.text.as_str()]);
        let mut writer = self.writer.lock_unless_congested().await.map_err(AddError::Refused)?;
        // The writer waits without limit: a rejection now would waste the time for which it held
        // its lock.
        let mut open = writer.open.data.lock().await;
        let words = self.collection.read().unwrap_or_else(PoisonError::into_inner).words + u64::from(counted.length);
        if words > WORDS_MAX || self.terms.len() + counted.words.len() > TERMS_MAX {
            return Err(AddError::Full);
        }
        // No wait from here until the document is complete.
        let number = {
            let mut titles = self.titles.write().unwrap_or_else(PoisonError::into_inner);
            if titles.len() >= DOCUMENTS_MAX {
                return Err(AddError::Full);
            }
            titles.push(title(&document.title));
            titles.len() as u32 - 1
        };
        counted.words.iter().for_each(|(word, count)| self.terms.add(word, *count));
        {
            let mut collection = self.collection.write().unwrap_or_else(PoisonError::into_inner);
            collection.documents += 1;
            collection.words += u64::from(counted.length);
        }
        open.push(&counted);
        let documents = open.documents();
        if documents < self.layout.seal_at {
            return Ok(number);
        }
        open.seal();
        drop(open);
        let full = std::mem::replace(&mut writer.open, Segment::new(number + 1, SegmentData::new()));
        writer.sealed.push((full, documents));
        self.publish(&writer);
        self.tidy(&mut writer).await;
        Ok(number)
    }

    /// Merges segments of equal magnitude. A cancelled caller leaves the merge to the next one.
    async fn tidy(&self, writer: &mut Writer) {
        let sizes = |writer: &Writer| writer.sealed.iter().map(|(_, documents)| *documents).collect::<Vec<_>>();
        while is_merge_due(&sizes(writer), self.layout) {
            let from = writer.sealed.len() - self.layout.merge_factor;
            self.merge(writer, from).await;
        }
    }

    /// Merges all full segments into one.
    pub async fn optimize(&self) {
        let mut writer = self.writer.lock().await;
        if writer.sealed.len() > 1 {
            self.merge(&mut writer, 0).await;
        }
    }

    async fn merge(&self, writer: &mut Writer, from: usize) {
        let sources = &writer.sealed[from..];
        let documents = sources.iter().map(|(_, documents)| documents).sum();
        let segments: Vec<Arc<Segment>> = sources.iter().map(|(segment, _)| Arc::clone(segment)).collect();
        let merged = merge(&segments).await;
        writer.sealed.truncate(from);
        writer.sealed.push((merged, documents));
        self.publish(writer);
    }

    /// Makes the segments visible to searches that begin from now on.
    fn publish(&self, writer: &Writer) {
        *self.segments.write().unwrap_or_else(PoisonError::into_inner) = writer.visible();
    }

    /// Returns the terms of the initial documents, the most frequent first.
    pub fn vocabulary(&self) -> &[VocabularyEntry] {
        &self.vocabulary
    }

    /// Returns the number of initial documents.
    pub fn initial_documents(&self) -> u32 {
        self.initial_documents
    }

    /// Returns the size of the index.
    pub fn size(&self) -> IndexSize {
        let collection = *self.collection.read().unwrap_or_else(PoisonError::into_inner);
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        IndexSize { documents: collection.documents, words: collection.words, terms: self.terms.len() as u64, segments }
    }
}

impl Writer {
    fn visible(&self) -> Arc<[Arc<Segment>]> {
        let sealed = self.sealed.iter().map(|(segment, _)| segment);
        sealed.chain([&self.open]).map(Arc::clone).collect()
    }
}

/// Cuts a title to [`TITLE_MAX`].
fn title(text: &str) -> Arc<str> {
    text[..text.floor_char_boundary(TITLE_MAX)].into()
}
