//! Search requests as the load generator sends them, and the vocabulary that they are drawn from.

use super::queries::{QueryGenerator, QueryMix, WordFrequency};
use crate::wire::{self, SEARCH, VOCABULARY};
use crate::{MatchMode, VocabularyEntry};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use leeward_services::definition::{PrepareError, Target, call_patiently};
use leeward_workload::rng::{Purpose, Rng};

/// Generates a query per request from random bits.
#[derive(Clone, Debug)]
pub(super) struct SearchGenerator(QueryGenerator);

impl SearchGenerator {
    /// Creates a generator for documents with this vocabulary; `None` if `mix` excludes every word.
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

/// Greatest number of vocabulary pages that are fetched.
const PAGES_MAX: usize = 10_000;

/// Creates a generator from a running server's vocabulary.
///
/// # Errors
/// The server does not answer, is not a search service, or has no word that `mix` accepts.
pub(super) fn fetch_generator(server: &Target<'_>, mix: QueryMix) -> Result<SearchGenerator, PrepareError> {
    let address = server.address;
    let fail = |reason| PrepareError::Server { step: "the vocabulary of", address, reason };
    let client = server.client().map_err(fail)?;
    let (mut vocabulary, mut documents) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let mut rank = Vec::new();
        wire::write_rank(vocabulary.len() as u32, &mut rank);
        let answer = call_patiently(&client, VOCABULARY, &rank).map_err(fail)?;
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
    fn equal_bits_give_equal_queries() {
        let index = Index::build(corpus::small(), Layout::default());
        let mix = QueryMix { results: 7, ..QueryMix::default() };
        let generator = SearchGenerator::new(mix, index.vocabulary(), index.size().documents as u32).unwrap();
        let generate = |bits| {
            let mut payload = Vec::new();
            assert_eq!(generator.generate(bits, &mut payload), SEARCH);
            payload
        };
        assert_eq!(generate(7), generate(7));
        let different = (0..100).map(generate).collect::<std::collections::BTreeSet<_>>().len();
        assert!(different > 80, "{different}");
        for bits in 0..100 {
            let query = wire::read_query(&generate(bits)).unwrap();
            assert!((1..=4).contains(&query.words().len()) && query.results() == 7);
        }
    }
}
