//! Compares the index with a search over every document, on random collections and queries.
//!
//! The results must not depend on the segments, or on the time at which documents were added.

use leeward_search::{Document, Index, Layout, MatchMode, Query, SearchResult, token::words};
use proptest::prelude::*;
use std::cmp::Reverse;

/// Generates the words of a document, in order.
fn text() -> impl Strategy<Value = String> {
    // Few different words, so that queries match; `q` is in no document.
    prop::collection::vec("[a-e]|[a-c][a-c]", 0..60).prop_map(|words| words.join(" "))
}

fn collection() -> impl Strategy<Value = Vec<Document>> {
    let document = text().prop_map(|text| Document { title: text.chars().take(5).collect(), text });
    prop::collection::vec(document, 0..40)
}

fn query() -> impl Strategy<Value = Query> {
    let words = prop::collection::vec("[a-eq]|[a-c][a-c]", 1..5);
    (words, any::<bool>(), 1usize..20).prop_map(|(words, all, results)| {
        let matching = if all { MatchMode::All } else { MatchMode::Any };
        Query::parse(&words.join(" "), matching, results).unwrap()
    })
}

/// BM25 after the textbook formula, with the index's rounded lengths.
fn brute_force_search(documents: &[Document], query: &Query) -> Vec<(u32, f64)> {
    let split = |document: &Document| {
        let mut all = Vec::new();
        words(&document.title, |word| all.push(word.to_string()));
        words(&document.text, |word| all.push(word.to_string()));
        all
    };
    let documents: Vec<Vec<String>> = documents.iter().map(split).collect();
    let count = documents.len() as f64;
    let mean = (documents.iter().map(Vec::len).sum::<usize>() as f64 / count).max(1.0);
    let mut scored = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let mut score = 0.0;
        let mut present = 0;
        for word in query.words() {
            let times = document.iter().filter(|other| *other == word).count() as f64;
            if times == 0.0 {
                continue;
            }
            present += 1;
            let containing = documents.iter().filter(|other| other.iter().any(|other| other == word)).count() as f64;
            let idf = (1.0 + (count - containing + 0.5) / (containing + 0.5)).ln();
            // Below 32 words lengths are exact; above they are rounded down to an eighth of a power
            // of two.
            let length = document.len();
            let length = if length < 32 { length } else { length / 4 * 4 };
            score += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length as f64 / mean));
        }
        let is_match = if query.mode() == MatchMode::All { present == query.words().len() } else { present > 0 };
        if is_match {
            scored.push((number as u32, score));
        }
    }
    scored
}

fn check(found: &SearchResult, expected: &[(u32, f64)], query: &Query) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.matches, expected.len() as u64);
    prop_assert_eq!(found.hits.len(), expected.len().min(query.results()));
    for hit in &found.hits {
        let (_, score) = expected.iter().find(|(document, _)| *document == hit.document).unwrap();
        // Fixed point: each word's part is rounded to 2⁻¹⁶.
        prop_assert!((hit.score.value() - score).abs() < 1e-4, "{} for {}", hit.score.value(), score);
    }
    let order: Vec<_> = found.hits.iter().map(|hit| (Reverse(hit.score), hit.document)).collect();
    prop_assert!(order.is_sorted());
    // No better document is missing.
    if let Some(worst) = found.hits.last() {
        let better = expected.iter().filter(|(_, score)| *score > worst.score.value() + 1e-4).count();
        prop_assert!(better < found.hits.len());
    }
    Ok(())
}

fn ask(index: &Index, query: &Query) -> SearchResult {
    pollster::block_on(index.search(query)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_brute_force_finds(
        documents in collection(), queries in prop::collection::vec(query(), 1..8), segments in 1usize..5
    ) {
        let index = Index::build(documents.clone(), Layout { segments, ..Layout::default() });
        for query in &queries {
            check(&ask(&index, query), &brute_force_search(&documents, query), query)?;
        }
    }

    #[test]
    fn results_do_not_depend_on_how_documents_were_added(
        documents in collection(), queries in prop::collection::vec(query(), 1..8),
        first in 0usize..40, segments in 1usize..4, seal_at in 1usize..6, merge_factor in 2usize..4
    ) {
        let first = first.min(documents.len());
        let whole = Index::build(documents.clone(), Layout::default());
        let grown = Index::build(documents[..first].to_vec(), Layout { segments, seal_at, merge_factor });
        for (number, document) in documents.iter().enumerate().skip(first) {
            // A search in between: caches must notice additions.
            ask(&grown, &queries[number % queries.len()]);
            prop_assert_eq!(pollster::block_on(grown.add(document)), Ok(number as u32));
        }
        for query in &queries {
            prop_assert_eq!(ask(&grown, query), ask(&whole, query));
        }
        prop_assert_eq!(grown.size().documents, whole.size().documents);
        prop_assert_eq!((grown.size().words, grown.size().terms), (whole.size().words, whole.size().terms));
        pollster::block_on(grown.optimize());
        prop_assert!(grown.size().segments <= 2);
        for query in &queries {
            prop_assert_eq!(ask(&grown, query), ask(&whole, query));
        }
    }
}
