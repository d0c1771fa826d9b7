//! Set Algebra: the same documents for any number of leaves.

use crate::support::{MODELS, TestClient, addresses, leaves, start};
use leeward_rpc::wire::Method;
use leeward_sets::data::{Documents, name};
use leeward_sets::stop::StopWords;
use leeward_sets::wire::{SearchResult, append_words};
use leeward_testkit::serial::serial_guard;
use leeward_workload::rng::{Purpose, Rng};
use std::collections::BTreeSet;

const TEXT: &str = "synthetic:3000:30:7";
const DATA: Documents = Documents::Synthetic { count: 3_000, words: 30, seed: 7 };

/// Finds the documents with all of these words, without stop words, by examining each document.
fn naive(words: &[String], stop: &StopWords) -> Vec<u32> {
    let needed_words: BTreeSet<&str> =
        words.iter().map(String::as_str).filter(|word| !stop.contains(word.as_bytes())).collect();
    if needed_words.is_empty() {
        return Vec::new();
    }
    let has_all = |number: &u32| {
        let mut words = BTreeSet::new();
        DATA.words(*number..number + 1, |_, word| _ = words.insert(word.to_string()));
        needed_words.iter().all(|word| words.contains(*word))
    };
    (0..DATA.count()).filter(has_all).collect()
}

fn argument(words: &[String]) -> Vec<u8> {
    let mut argument = Vec::new();
    append_words(words.iter().map(String::as_bytes), &mut argument);
    argument
}

#[test]
fn any_number_of_leaves_finds_what_a_full_scan_finds() {
    let _alone = serial_guard();
    let stop = StopWords::build(&DATA);
    let mut rng = Rng::new(3, Purpose::Data);
    let queries: Vec<Vec<String>> =
        (0..12).map(|_| (0..=rng.below(3)).map(|_| name(1 + rng.below(200) as u32)).collect()).collect();
    let expected: Vec<Vec<u32>> = queries.iter().map(|words| naive(words, &stop)).collect();
    assert!(expected.iter().any(|ids| ids.len() > 3) && expected.iter().any(Vec::is_empty));
    for (count, model) in [1, 2, 4, 7].into_iter().zip(MODELS) {
        let leaves = leaves("sets-leaf", count, TEXT);
        let tier = start("sets", &[("leaves", &addresses(&leaves)), ("data", TEXT), ("threading", model)]);
        let client = TestClient::connect(&tier);
        for (words, expected) in queries.iter().zip(&expected) {
            let answer = client.call_until_complete(Method(0), &argument(words));
            let found = SearchResult::read(&answer[2..]).unwrap();
            assert_eq!(found.total as usize, expected.len(), "{words:?}");
            assert!(found.ids().eq(expected.iter().copied()), "{words:?} under {model}");
        }
    }
}

#[test]
fn an_unreachable_leaf_makes_answers_partial_and_garbage_is_rejected() {
    let mut leaves = leaves("sets-leaf", 3, TEXT);
    let tier = start("sets", &[("leaves", &addresses(&leaves)), ("data", TEXT), ("threading", "ADB1-2-1")]);
    let client = TestClient::connect(&tier);
    let query = argument(&[name(60)]);
    let whole = client.call_until_complete(Method(0), &query);
    assert_eq!(whole[..2], [3, 3]);
    assert_eq!(client.call_error(Method(0), &[2, 1, b'a']), "a word that is cut short");
    assert_eq!(client.call_error(Method(0), &[1, 0]), "an empty word");
    leaves.pop().unwrap().stop().unwrap();
    let partial = loop {
        let answer = client.call(Method(0), &query);
        if answer[1] < answer[0] {
            break answer;
        }
    };
    assert_eq!(partial[..2], [3, 2]);
    let total = |answer: &[u8]| SearchResult::read(&answer[2..]).unwrap().total;
    assert!(total(&partial) < total(&whole));
    // Only stop words: no word is left to search for.
    assert_eq!(client.call(Method(0), &argument(&[name(1)])), [0; 6]);
}
