//! The search service in the catalogue: its arguments, how it is served, and what clients ask of it.
//!
//! - [`queries`]: which words are asked for.
//! - `searches`: requests as the load generator sends them, and the vocabulary that they are drawn from.
//! - `documents`: what is searched.

mod documents;
pub mod queries;
mod searches;

pub use queries::{Queries, QueryMix};

use crate::{Index, Layout, Search, corpus};
use documents::Documents;
use leeward_core::units::UnitError;
use leeward_rpc::ask::Ask;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_services::arguments::{Argument, Elsewhere, Kind, Values};
use leeward_services::case::{Case, CaseError, Notice, Progress, Requests, Target};
use leeward_services::served::{Backend, Bottleneck, Served};
use searches::{Searches, searches_of};
use std::sync::Arc;

/// The search service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SearchCase;

const CORPUS: Argument = Argument {
    name: "corpus",
    value_name: "FILE",
    help: "Documents to search; by default those of `leeward corpus`, or a few hundred that come along",
    kind: Kind::File,
    default: None,
    elsewhere: Elsewhere::Refused,
};

const SEGMENTS: Argument = Argument {
    name: "segments",
    value_name: "N",
    help: "Segments, each with a lock of its own, that the documents are put into",
    kind: Kind::Count { least: 1, most: 1_000 },
    default: Some("1"),
    elsewhere: Elsewhere::Refused,
};

impl Case for SearchCase {
    fn name(&self) -> &'static str {
        "search"
    }

    fn summary(&self) -> &'static str {
        "Finds documents by their words"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[CORPUS, SEGMENTS]
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        progress(Notice::Step("reading documents"));
        let found = Documents::load(values.file(CORPUS.name)).map_err(CaseError::input)?;
        let count = found.documents.len();
        if found.file.is_none() {
            progress(Notice::Note(&format!(
                "searching the {count} documents that come along: `leeward corpus` makes some 64,000"
            )));
        }
        progress(Notice::Step(&format!("indexing {count} documents")));
        let segments = values.count(SEGMENTS.name).unwrap_or(1) as usize;
        let index = Index::build(found.documents, Layout { segments, ..Layout::default() });
        Ok(Box::new(Indexed(Arc::new(index))))
    }

    fn requests_help(&self) -> &'static str {
        "what is searched for, such as search or search:words=1-2,match=all, in the server's own words"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        QueryMix::parse(text).map(|mix| Arc::new(mix) as Arc<dyn Requests>)
    }
}

struct Indexed(Arc<Index>);

impl Backend for Indexed {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start_async(address, Search::new(Arc::clone(&self.0)))
    }
}

impl Requests for QueryMix {
    fn warning(&self) -> Option<String> {
        let is_made = corpus::default_path().is_some_and(|path| path.exists());
        let words = "only the few hundred documents that come along are searched, which takes no time worth measuring; \
            `leeward corpus` makes some 64,000";
        (!is_made).then(|| words.into())
    }

    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        Ok(Some(Arc::new(searches_of(server, *self)?)))
    }

    fn both_ends(&self, progress: &Progress<'_>) -> Result<Served, CaseError> {
        progress(Notice::Step("reading and indexing documents"));
        let found = Documents::load(None).map_err(CaseError::input)?;
        let from = match found.file {
            Some(_) => "from a file",
            None => "that come along (`leeward corpus` makes more)",
        };
        let index = Index::build(found.documents, Layout::default());
        let searches = Searches::new(*self, index.vocabulary(), index.built_with());
        let no_words = || CaseError::input(format!("`{self}` leaves no word of the documents to ask for"));
        let ask = Arc::new(searches.ok_or_else(no_words)?);
        let size = index.size();
        let (documents, words, segments) = (size.documents, size.words, size.segments - 1);
        let words = format!("Searched here: {documents} documents {from}, {words} words, in {segments} segment(s).");
        let backend = Arc::new(Indexed(Arc::new(index)));
        Ok(Served { backend, ask: Some(ask), words: Some(words), bottleneck: Bottleneck::Locks })
    }
}
