//! Requests for documents as the load generator sends them, and the vocabulary that they are drawn from.

use super::queries::{QueryGenerator, QueryMix, WordFrequency};
use crate::wire::{self, SEARCH, VOCABULARY};
use crate::{MatchMode, VocabularyEntry};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use leeward_services::definition::{PrepareError, Target};
use leeward_workload::rng::{Purpose, Rng};

/// Asks for documents: a query per request, drawn from the request's bits.
#[derive(Clone, Debug)]
pub(super) struct SearchGenerator(QueryGenerator);

impl SearchGenerator {
    /// For documents with this vocabulary; `None` if the kind of queries leaves no word to ask for.
    pub(super) fn new<'a>(
        mix: QueryMix,
        vocabulary: impl IntoIterator<Item = &'a VocabularyEntry>,
        documents: u32,
    ) -> Option<Self> {
        let word = |entry: &VocabularyEntry| WordFrequency {
            text: entry.term.clone(),
            documents: entry.documents,
            occurrences: entry.occurrences,
        };
        QueryGenerator::new(mix, vocabulary.into_iter().map(word), documents).map(SearchGenerator)
    }
}

impl RequestGenerator for SearchGenerator {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        let mut text = String::new();
        self.0.draw(&mut Rng::new(random, Purpose::Service), &mut text);
        let mix = self.0.mix();
        let matching = if mix.all { MatchMode::All } else { MatchMode::Any };
        wire::write_query(&text, matching, mix.results, payload);
        SEARCH
    }

    fn is_answer(&self, _: u64, _: Method, answer: &[u8]) -> bool {
        wire::read_result(answer).is_ok_and(|found| found.hits.len() <= usize::from(self.0.mix().results))
    }
}

/// The most pages of a vocabulary that are asked for.
const PAGES_MAX: usize = 10_000;

/// Searches that a running server's documents allow, by the server's own account.
///
/// # Errors
/// The server does not answer, or is no search service, or has nothing that `mix` would ask for.
pub(super) fn fetch_generator(server: &Target<'_>, mix: QueryMix) -> Result<SearchGenerator, PrepareError> {
    let address = server.address;
    let fail = |reason| PrepareError::Server { step: "the vocabulary of", address, reason, service: "search" };
    let client = server.client().map_err(fail)?;
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
    SearchGenerator::new(mix, &vocabulary, documents).ok_or_else(|| fail("no word of it would be asked for".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, Layout, corpus};

    #[test]
    fn the_same_bits_ask_the_same() {
        let index = Index::build(corpus::small(), Layout::default());
        let mix = QueryMix { results: 7, ..QueryMix::default() };
        let searches = SearchGenerator::new(mix, index.vocabulary(), index.size().documents as u32).unwrap();
        let ask = |bits| {
            let mut payload = Vec::new();
            assert_eq!(searches.generate(bits, &mut payload), SEARCH);
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
