//! The search service in the catalogue: arguments, backend and client requests.
//!
//! - [`queries`]: the words of queries.
//! - `generator`: requests as the load generator sends them, and the vocabulary that they are drawn
//!   from.
//! - `documents`: the documents to search.

mod documents;
mod generator;
pub mod queries;

pub use queries::{QueryGenerator, QueryMix};

use crate::{Index, Layout, Search, corpus};
use documents::Documents;
use generator::{SearchGenerator, fetch_generator};
use leeward_core::units::UnitError;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use leeward_services::backend::{Backend, Bottleneck, InProcessService};
use leeward_services::definition::{Notice, PrepareError, Progress, Requests, ServiceDefinition, Target};
use std::sync::Arc;

/// The search service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct SearchDefinition;

const CORPUS: Argument = Argument {
    name: "corpus",
    value_name: "FILE",
    help: "Documents to search; by default those of `leeward corpus`, or a few hundred built-in ones",
    kind: Kind::File,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

const SEGMENTS: Argument = Argument {
    name: "segments",
    value_name: "N",
    help: "Number of segments that hold the documents, each with its own lock",
    kind: Kind::Count { least: 1, most: 1_000 },
    default: Some("1"),
    unsupported: UnsupportedPolicy::Refused,
};

impl ServiceDefinition for SearchDefinition {
    fn name(&self) -> &'static str {
        "search"
    }

    fn summary(&self) -> &'static str {
        "Finds documents by their words"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[CORPUS, SEGMENTS]
    }

    fn open(&self, values: &Values, _: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        progress(Notice::Step("reading documents"));
        let found = Documents::load(values.file(CORPUS.name)).map_err(PrepareError::input)?;
        let count = found.documents.len();
        if found.file.is_none() {
            progress(Notice::Note(&format!(
                "searching the {count} documents that come along: `leeward corpus` makes some 64,000"
            )));
        }
        progress(Notice::Step(&format!("indexing {count} documents")));
        let segments = values.count(SEGMENTS.name).unwrap_or(1) as usize;
        let index = Index::build(found.documents, Layout { segments, ..Layout::default() });
        Ok(Box::new(IndexBackend(Arc::new(index))))
    }

    fn requests_help(&self) -> &'static str {
        "searches with words of the server's documents: search, or search:words=1-2,match=all"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        QueryMix::parse(text).map(|mix| Arc::new(mix) as Arc<dyn Requests>)
    }
}

struct IndexBackend(Arc<Index>);

impl Backend for IndexBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start_async(address, Search::new(Arc::clone(&self.0)))
    }
}

impl Requests for QueryMix {
    fn warning(&self) -> Option<String> {
        let is_made = corpus::default_path().is_some_and(|path| path.exists());
        let message = "only the few hundred documents that come along are searched, which takes no time worth measuring; \
            `leeward corpus` makes some 64,000";
        (!is_made).then(|| message.into())
    }

    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(fetch_generator(server, *self)?)))
    }

    fn prepare_in_process(&self, progress: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        progress(Notice::Step("reading and indexing documents"));
        let found = Documents::load(None).map_err(PrepareError::input)?;
        let from = match found.file {
            Some(_) => "from a file",
            None => "that come along (`leeward corpus` makes more)",
        };
        let index = Index::build(found.documents, Layout::default());
        let generator = SearchGenerator::new(*self, index.vocabulary(), index.initial_documents());
        let no_words = || PrepareError::input(format!("`{self}` leaves no word of the documents to ask for"));
        let requests = Arc::new(generator.ok_or_else(no_words)?);
        let size = index.size();
        let (documents, words, segments) = (size.documents, size.words, size.segments - 1);
        let text = format!("Searched here: {documents} documents {from}, {words} words, in {segments} segment(s).");
        let backend = Arc::new(IndexBackend(Arc::new(index)));
        Ok(InProcessService {
            backend,
            generator: Some(requests),
            description: Some(text),
            bottleneck: Bottleneck::Locks,
        })
    }
}
