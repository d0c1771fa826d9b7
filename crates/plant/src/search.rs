//! The search service and its clients: which documents, and what is asked of them.

use leeward_control::params::Params;
use leeward_control::registry::Algorithm;
use leeward_control::units::Nanos;
use leeward_load::ask::Ask;
use leeward_rpc::client::Client;
use leeward_rpc::wire::Method;
use leeward_search::corpus::{self, CorpusError};
use leeward_search::wire::{self, SEARCH, VOCABULARY};
use leeward_search::{Document, Entry, Matching};
use leeward_workload::Queries;
use leeward_workload::queries::Word;
use leeward_workload::rng::{Purpose, Rng};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use leeward_workload::QueryMix;

/// Asks for documents: a query per request, drawn from the request's bits.
#[derive(Clone, Debug)]
pub struct Searches(Queries);

impl Searches {
    /// For documents with this vocabulary; `None` if the kind of queries leaves no word to ask for.
    pub fn new<'a>(mix: QueryMix, vocabulary: impl IntoIterator<Item = &'a Entry>, documents: u32) -> Option<Self> {
        let word = |entry: &Entry| Word {
            text: entry.term.clone(),
            documents: entry.documents,
            occurrences: entry.occurrences,
        };
        Queries::new(mix, vocabulary.into_iter().map(word), documents).map(Searches)
    }
}

impl Ask for Searches {
    fn ask(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        let mut text = String::new();
        self.0.draw(&mut Rng::new(random, Purpose::Service), &mut text);
        let mix = self.0.mix();
        let matching = if mix.all { Matching::All } else { Matching::Any };
        wire::write_query(&text, matching, mix.results, payload);
        SEARCH
    }
}

/// Documents, and where they are from.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The documents.
    pub documents: Vec<Document>,
    /// The file; `None` for the small corpus that comes along.
    pub file: Option<PathBuf>,
}

impl Corpus {
    /// The documents of `file`; if none is named, those that `leeward corpus` has made, and if it has not, the small corpus.
    ///
    /// # Errors
    /// A file that is there, or was named, and is no corpus.
    pub fn load(file: Option<&Path>) -> Result<Self, CorpusError> {
        let made = corpus::default_path().filter(|path| path.exists());
        match file.map(Path::to_path_buf).or(made) {
            Some(path) => Ok(Corpus { documents: corpus::read(&path)?, file: Some(path) }),
            None => Ok(Corpus { documents: corpus::small(), file: None }),
        }
    }
}

/// No vocabulary could be had from a server.
#[derive(Debug, thiserror::Error)]
#[error("the vocabulary of {address}: {reason}; is it `leeward serve --service search`?")]
pub struct NoVocabulary {
    address: SocketAddr,
    reason: String,
}

/// The most pages of a vocabulary that are asked for.
const PAGES_MAX: usize = 10_000;

/// Searches that a running server's documents allow, by the server's own account.
///
/// # Errors
/// The server does not answer, or is no search service, or has nothing that `mix` would ask for.
pub fn searches_of(
    address: SocketAddr,
    mix: QueryMix,
    admission: (&Algorithm, &Params),
    objective: (Nanos, Nanos),
) -> Result<Searches, NoVocabulary> {
    let fail = |reason: String| NoVocabulary { address, reason };
    let client = Client::builder()
        .replica(address.to_string())
        .admission(admission.0, admission.1.clone())
        .objective(objective.0, objective.1)
        .build()
        .map_err(|error| fail(error.to_string()))?;
    let (mut vocabulary, mut documents) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let mut rank = Vec::new();
        wire::write_rank(vocabulary.len() as u32, &mut rank);
        let answer = client.call_blocking(VOCABULARY, rank).map_err(|error| fail(error.to_string()))?;
        let page = wire::read_page(&answer.payload).map_err(|error| fail(error.to_string()))?;
        documents = page.documents;
        if page.entries.is_empty() {
            break;
        }
        vocabulary.extend(page.entries);
    }
    client.shut_down();
    Searches::new(mix, &vocabulary, documents).ok_or_else(|| fail("no word of it would be asked for".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_search::{Index, Layout};

    #[test]
    fn the_same_bits_ask_the_same() {
        let index = Index::build(corpus::small(), Layout::default());
        let mix = QueryMix { results: 7, ..QueryMix::default() };
        let searches = Searches::new(mix, index.vocabulary(), index.size().documents as u32).unwrap();
        let ask = |bits| {
            let mut payload = Vec::new();
            assert_eq!(searches.ask(bits, &mut payload), SEARCH);
            payload
        };
        assert_eq!(ask(7), ask(7));
        let different = (0..100).map(ask).collect::<std::collections::BTreeSet<_>>().len();
        assert!(different > 80, "{different}");
        for bits in 0..100 {
            let query = wire::read_query(&ask(bits)).unwrap();
            assert!((1..=4).contains(&query.words().len()) && query.results() == 7);
        }
    }
}
