//! Untrusted bytes never make the readers panic, and accepted input is within the limits.

use leeward_search::query::{RESULTS_MAX, WORDS_MAX};
use leeward_search::wire::{self, Page};
use leeward_search::{Document, Hit, IndexSize, MatchMode, SearchResult, VocabularyEntry, score::Score};
use proptest::prelude::*;

fn search_result() -> impl Strategy<Value = SearchResult> {
    let hit = (any::<u32>(), any::<u32>(), "\\PC{0,20}").prop_map(|(document, score, title)| Hit {
        document,
        score: Score(score),
        title: title.into(),
    });
    (any::<u64>(), prop::collection::vec(hit, 0..10)).prop_map(|(matches, hits)| SearchResult { matches, hits })
}

fn entries() -> impl Strategy<Value = Vec<VocabularyEntry>> {
    let entry = (any::<u32>(), any::<u64>(), "[a-zö]{1,30}")
        .prop_map(|(documents, occurrences, term)| VocabularyEntry { term: term.into(), documents, occurrences });
    prop::collection::vec(entry, 0..20)
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(query) = wire::read_query(&bytes) {
            prop_assert!(query.words().len() <= WORDS_MAX && query.results() <= RESULTS_MAX);
        }
        let _ = wire::read_result(&bytes);
        let _ = wire::read_page(&bytes);
        let _ = wire::read_rank(&bytes);
        let _ = wire::read_document(&bytes);
        let _ = wire::read_size(&bytes);
    }

    #[test]
    fn damaged_answers_are_rejected(found in search_result(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        wire::write_result(&found, &mut bytes);
        prop_assert_eq!(wire::read_result(&bytes), Ok(found));
        let index = at.index(bytes.len());
        bytes[index] = byte;
        let _ = wire::read_result(&bytes);
        prop_assert!(wire::read_result(&bytes[..cut.index(10)]).is_err());
    }

    #[test]
    fn messages_round_trip(entries in entries(), rank in 0u32..25, documents in any::<u32>(), title in "\\PC{0,20}", text in "\\PC{0,80}") {
        let mut bytes = Vec::new();
        wire::write_page(&entries, documents, rank, &mut bytes);
        let rest = entries.get(rank as usize..).unwrap_or_default().to_vec();
        prop_assert_eq!(wire::read_page(&bytes), Ok(Page { terms: entries.len() as u32, documents, entries: rest }));
        let document = Document { title, text };
        bytes.clear();
        wire::write_document(&document, &mut bytes);
        prop_assert_eq!(wire::read_document(&bytes), Ok(document));
        let size = IndexSize { documents: rank.into(), words: documents.into(), terms: 3, segments: 4 };
        bytes.clear();
        wire::write_size(&size, &mut bytes);
        prop_assert_eq!(wire::read_size(&bytes), Ok(size));
        bytes.clear();
        wire::write_query("some words", MatchMode::All, 7, &mut bytes);
        let query = wire::read_query(&bytes).unwrap();
        prop_assert_eq!((query.mode(), query.results(), query.words().len()), (MatchMode::All, 7, 2));
    }
}
