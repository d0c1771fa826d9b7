//! Full-text search in memory, as an RPC service: BM25 over an inverted index that grows during
//! searches.
//!
//! For studies of locks: `leeward serve --service search`. Entry points: [`Index`], [`Query`]
//! and [`Search`].
//!
//! It is built around mutexes like the thesis's Lucene (§2.5.3), to show overload control where a
//! lock is the bottleneck.
//!
//! - [`token`], [`query`]: words and queries.
//! - [`Index`]: segments, terms and titles; its module describes the locks. `segment`, `postings`,
//!   `decoded_cache`, `terms`, `merge` are its parts; [`score`] and `ranking` find the best
//!   documents.
//! - [`corpus`]: documents to search: some built in, many from the package manager.
//! - [`wire`]: requests and answers as bytes. [`Search`]: the RPC handler.
//! - [`definition`]: the service in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_search::{Document, Index, Layout, MatchMode, Query};
//!
//! let document = |title: &str, text: &str| Document { title: title.into(), text: text.into() };
//! let documents = [document("tea", "A drink of leaves"), document("sail", "It drives a boat")];
//! let index = Index::build(documents, Layout::default());
//! let query = Query::parse("drink tea", MatchMode::Any, 10)?;
//! let found = pollster::block_on(index.search(&query))?;
//! assert_eq!(&*found.hits[0].title, "tea");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain admission or sockets.

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
