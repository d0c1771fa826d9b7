//! Services of the server with the questions of its clients: the one place that knows which services there are.

use crate::pairs::{Asks, fill};
use crate::search::{Corpus, Searches};
use leeward_kv::service::Kv;
use leeward_kv::store::{Store, StoreConfig};
use leeward_load::ask::Ask;
use leeward_rpc::server::{Builder, Server, ServerError};
pub use leeward_search::Layout;
use leeward_search::corpus::CorpusError;
use leeward_search::{Index, Search};
use leeward_services::synthetic::Synthetic;
use leeward_workload::{PairService, QueryMix};
use std::sync::Arc;

/// A service, ready to be served again and again, and what its clients ask.
#[derive(Clone)]
pub enum Served {
    /// Keeps a core busy for as long as each request says.
    Synthetic,
    /// Keeps pairs.
    Pairs {
        /// Which are asked for, and how.
        asks: Arc<Asks>,
    },
    /// Finds documents.
    Search {
        /// Of these.
        index: Arc<Index>,
        /// With these queries.
        searches: Arc<Searches>,
        /// Where they are from.
        from: String,
    },
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Served::Synthetic => "Synthetic",
            Served::Pairs { .. } => "Pairs",
            Served::Search { .. } => "Search",
        })
    }
}

/// A service that can't be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnservedError {
    /// There are no documents.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The documents have no word that would be asked for.
    #[error("`{0}` leaves no word of the documents to ask for")]
    NoWords(QueryMix),
}

impl Served {
    /// A search over these documents, asked such queries.
    ///
    /// # Errors
    /// See [`UnservedError`].
    pub fn search(corpus: Corpus, layout: Layout, mix: QueryMix) -> Result<Self, UnservedError> {
        let from = match corpus.file {
            Some(_) => "from a file",
            None => "that come along (`leeward corpus` makes more)",
        };
        let index = Index::build(corpus.documents, layout);
        let searches = Searches::new(mix, index.vocabulary(), index.built_with());
        let searches = searches.ok_or(UnservedError::NoWords(mix))?;
        Ok(Served::Search { index: Arc::new(index), searches: Arc::new(searches), from: from.into() })
    }

    /// Pairs, asked for so.
    pub fn pairs(service: PairService) -> Self {
        Served::Pairs { asks: Arc::new(Asks::new(service)) }
    }

    /// Description of the service in a sentence, if its name does not say.
    pub fn words(&self) -> Option<String> {
        let Served::Search { index, from, .. } = self else { return None };
        let size = index.size();
        let (documents, words, segments) = (size.documents, size.words, size.segments - 1);
        Some(format!("Searched here: {documents} documents {from}, {words} words, in {segments} segment(s)."))
    }

    /// Whether requests wait for more than CPUs. Then the server may have all of them: what the clients take is little.
    pub fn takes_locks(&self) -> bool {
        !matches!(self, Served::Synthetic)
    }

    /// Starts a server of it.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        match self {
            Served::Synthetic => builder.start(address, Synthetic::new()),
            Served::Pairs { asks } => {
                // One for each run: no run finds what another has left. There is room for all that a mix may store.
                let config = StoreConfig { memory: 1 << 30, hash_power: 17, threads: 2, ..StoreConfig::default() };
                let store = Arc::new(Store::new(&config).map_err(std::io::Error::other)?);
                fill(&store, asks.pairs()).map_err(std::io::Error::other)?;
                builder.start(address, Kv::new(store))
            }
            Served::Search { index, .. } => builder.start_async(address, Search::new(Arc::clone(index))),
        }
    }

    /// Questions of the clients; `None` for the service times that are drawn.
    pub fn ask(&self) -> Option<Arc<dyn Ask>> {
        match self {
            Served::Synthetic => None,
            Served::Pairs { asks } => Some(Arc::clone(asks) as Arc<dyn Ask>),
            Served::Search { searches, .. } => Some(Arc::clone(searches) as Arc<dyn Ask>),
        }
    }
}
