//! Full-text search in memory: BM25 over an inverted index that is asked while it grows, as an RPC service. Built around
//! mutexes the way the thesis's Lucene is (§2.5.3), to show overload control where a lock is the bottleneck.
//!
//! - [`token`], [`query`]: words, and what can be asked.
//! - [`Index`]: segments, terms and titles; its head says what each lock guards. `segment`, `postings`, `decoded`,
//!   `terms`, `merge` are its parts; [`score`] and `ranking` say what fits best.
//! - [`corpus`]: documents to search: some that come along, many from the package manager.
//! - [`wire`]: requests and answers as bytes. [`Search`]: the RPC handler.
//! - [`case`]: the service in the catalogue: arguments, and what clients ask.
//!
//! Never here: admission, sockets.

#![forbid(unsafe_code)]

pub mod corpus;
mod decoded_cache;
pub mod definition;
mod index;
mod locks;
mod merge;
mod postings;
pub mod query;
mod ranking;
pub mod score;
mod segment;
mod service;
mod terms;
pub mod token;
pub mod wire;

pub use index::{AddError, DOCUMENTS_MAX, Document, Hit, Index, IndexSize, SearchResult, TITLE_MAX, VocabularyEntry};
pub use locks::Refused;
pub use query::{MatchMode, Query};
pub use segment::Layout;
pub use service::Search;
