//! Requests and answers as bytes: little-endian integers, UTF-8 texts. `docs/search.md` describes
//! them for other languages.

use super::index::{Document, Hit, IndexSize, SearchResult, VocabularyEntry};
use super::query::{MatchMode, Query, QueryError};
use super::score::Score;
use leeward_rpc::wire::Method;

/// Request: query. Answer: the best documents.
pub const SEARCH: Method = Method(0);
/// Request: rank. Answer: terms from that rank on, by frequency.
pub const VOCABULARY: Method = Method(1);
/// Request: document. Answer: its number.
pub const ADD: Method = Method(2);
/// Request: empty. Answer: size of the index.
pub const SIZE: Method = Method(3);

/// Size limit of a vocabulary page, in bytes.
const PAGE_MAX: usize = 32 << 10;

/// Malformed bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end too early.
    #[error("the {0} is cut short")]
    Short(&'static str),
    /// Excess bytes follow.
    #[error("bytes after the end of the {0}")]
    Long(&'static str),
    /// A text is not UTF-8.
    #[error("the {0} is not UTF-8")]
    Text(&'static str),
    /// The match mode is neither 0 (any) nor 1 (all).
    #[error("matching {0}; accepted: 0 (any word), 1 (all words)")]
    Matching(u8),
    /// The query can't be answered.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Reads values from the front of `bytes`.
struct Reader<'a> {
    bytes: &'a [u8],
    field: &'static str,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], name: &'static str) -> Self {
        Reader { bytes, field: name }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(WireError::Short(self.field))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(WireError::Short(self.field))?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self, count: usize) -> Result<&'a str, WireError> {
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map_err(|_| WireError::Text(self.field))
    }

    fn rest(&mut self) -> Result<&'a str, WireError> {
        self.text(self.bytes.len())
    }

    fn end(&self) -> Result<(), WireError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(WireError::Long(self.field)) }
    }
}

/// Writes a [`SEARCH`] request: results (2 bytes), match mode (1), the words.
pub fn write_query(text: &str, matching: MatchMode, results: u16, into: &mut Vec<u8>) {
    into.extend_from_slice(&results.to_le_bytes());
    into.push(matching as u8);
    into.extend_from_slice(text.as_bytes());
}

/// Reads a [`SEARCH`] request.
///
/// # Errors
/// See [`WireError`].
pub fn read_query(bytes: &[u8]) -> Result<Query, WireError> {
    let mut reader = Reader::new(bytes, "query");
    let results = reader.u16()?;
    let matching = match reader.u8()? {
        0 => MatchMode::Any,
        1 => MatchMode::All,
        other => return Err(WireError::Matching(other)),
    };
    Ok(Query::parse(reader.rest()?, matching, results.into())?)
}

/// Writes a [`SEARCH`] answer: number of matches (8), number of results (2), and the results.
///
/// Each result is document number (4), score (4), the title's length (2), the title.
pub fn write_result(result: &SearchResult, into: &mut Vec<u8>) {
    into.extend_from_slice(&result.matches.to_le_bytes());
    into.extend_from_slice(&(result.hits.len() as u16).to_le_bytes());
    for hit in &result.hits {
        into.extend_from_slice(&hit.document.to_le_bytes());
        into.extend_from_slice(&hit.score.0.to_le_bytes());
        into.extend_from_slice(&(hit.title.len() as u16).to_le_bytes());
        into.extend_from_slice(hit.title.as_bytes());
    }
}

/// Reads a [`SEARCH`] answer.
///
/// # Errors
/// See [`WireError`].
pub fn read_result(bytes: &[u8]) -> Result<SearchResult, WireError> {
    let mut reader = Reader::new(bytes, "answer");
    let (matches, count) = (reader.u64()?, reader.u16()?);
    let mut hits = Vec::new();
    for _ in 0..count {
        let (document, score, length) = (reader.u32()?, Score(reader.u32()?), reader.u16()?);
        hits.push(Hit { document, score, title: reader.text(length.into())?.into() });
    }
    reader.end()?;
    Ok(SearchResult { matches, hits })
}

/// A part of the vocabulary, by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Number of all terms.
    pub terms: u32,
    /// Number of documents behind the vocabulary.
    pub documents: u32,
    /// Terms from the requested rank on; empty after the end.
    pub entries: Vec<VocabularyEntry>,
}

/// Writes a [`VOCABULARY`] request: the rank of the first term (4 bytes), from 0.
pub fn write_rank(rank: u32, into: &mut Vec<u8>) {
    into.extend_from_slice(&rank.to_le_bytes());
}

/// Reads a [`VOCABULARY`] request.
///
/// # Errors
/// See [`WireError`].
pub fn read_rank(bytes: &[u8]) -> Result<u32, WireError> {
    let mut reader = Reader::new(bytes, "rank");
    let rank = reader.u32()?;
    reader.end().map(|()| rank)
}

/// Writes a [`VOCABULARY`] answer: number of terms (4), number of documents (4), and the terms.
///
/// Each term is documents (4), occurrences (8), its length (1), its text.
pub fn write_page(vocabulary: &[VocabularyEntry], documents: u32, rank: u32, into: &mut Vec<u8>) {
    into.extend_from_slice(&(vocabulary.len() as u32).to_le_bytes());
    into.extend_from_slice(&documents.to_le_bytes());
    for entry in vocabulary.iter().skip(rank as usize) {
        if into.len() + 13 + entry.term.len() > PAGE_MAX {
            break;
        }
        into.extend_from_slice(&entry.documents.to_le_bytes());
        into.extend_from_slice(&entry.occurrences.to_le_bytes());
        // A word has up to 64 bytes.
        into.push(entry.term.len() as u8);
        into.extend_from_slice(entry.term.as_bytes());
    }
}

/// Reads a [`VOCABULARY`] answer.
///
/// # Errors
/// See [`WireError`].
pub fn read_page(bytes: &[u8]) -> Result<Page, WireError> {
    let mut reader = Reader::new(bytes, "vocabulary");
    let mut page = Page { terms: reader.u32()?, documents: reader.u32()?, entries: Vec::new() };
    while !reader.bytes.is_empty() {
        let (documents, occurrences, length) = (reader.u32()?, reader.u64()?, reader.u8()?);
        page.entries.push(VocabularyEntry { term: reader.text(length.into())?.into(), documents, occurrences });
    }
    Ok(page)
}

/// Writes an [`ADD`] request: the title's length (2 bytes), the title, the text.
///
/// A title of more than 65,535 bytes is cut.
pub fn write_document(document: &Document, into: &mut Vec<u8>) {
    let title = &document.title[..document.title.floor_char_boundary(usize::from(u16::MAX))];
    into.extend_from_slice(&(title.len() as u16).to_le_bytes());
    into.extend_from_slice(title.as_bytes());
    into.extend_from_slice(document.text.as_bytes());
}

/// Reads an [`ADD`] request.
///
/// # Errors
/// See [`WireError`].
pub fn read_document(bytes: &[u8]) -> Result<Document, WireError> {
    let mut reader = Reader::new(bytes, "document");
    let length = reader.u16()?;
    Ok(Document { title: reader.text(length.into())?.into(), text: reader.rest()?.into() })
}

/// Writes a [`SIZE`] answer: documents, words, terms, segments (8 bytes each).
pub fn write_size(size: &IndexSize, into: &mut Vec<u8>) {
    for count in [size.documents, size.words, size.terms, size.segments] {
        into.extend_from_slice(&count.to_le_bytes());
    }
}

/// Reads a [`SIZE`] answer.
///
/// # Errors
/// See [`WireError`].
pub fn read_size(bytes: &[u8]) -> Result<IndexSize, WireError> {
    let mut reader = Reader::new(bytes, "size");
    let size =
        IndexSize { documents: reader.u64()?, words: reader.u64()?, terms: reader.u64()?, segments: reader.u64()? };
    reader.end().map(|()| size)
}
