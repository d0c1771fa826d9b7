//! Set Algebra: the same documents for any number of leaves.

use crate::support::{MODELS, TestClient, addresses, leaves, start};
use leeward_rpc::wire::Method;
use leeward_sets::data::{Documents, name};
use leeward_sets::stop::StopWords;
use leeward_sets::wire::{SearchResult, append_words};
use leeward_workload::rng::{Purpose, Rng};
use std::collections::BTreeSet;

const TEXT: &str = "synthetic:3000:30:7";
const DATA: Documents = Documents::Synthetic { count: 3_000, words: 30, seed: 7 };

/// Documents with all of these words that are no stop words, by looking at each.
fn naive(words: &[String], stop: &StopWords) -> Vec<u32> {
    let wanted: BTreeSet<&str> =
        words.iter().map(String::as_str).filter(|word| !stop.contains(word.as_bytes())).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let has_all = |number: &u32| {
        let mut words = BTreeSet::new();
        DATA.words(*number..number + 1, |_, word| _ = words.insert(word.to_string()));
        wanted.iter().all(|word| words.contains(*word))
    };
    (0..DATA.count()).filter(has_all).collect()
}

fn argument(words: &[String]) -> Vec<u8> {
    let mut argument = Vec::new();
    append_words(words.iter().map(String::as_bytes), &mut argument);
    argument
}

#[test]
fn any_number_of_leaves_finds_what_looking_finds() {
    let stop = StopWords::build(&DATA);
    let mut rng = Rng::new(3, Purpose::Data);
    let questions: Vec<Vec<String>> =
        (0..12).map(|_| (0..=rng.below(3)).map(|_| name(1 + rng.below(200) as u32)).collect()).collect();
    let expected: Vec<Vec<u32>> = questions.iter().map(|words| naive(words, &stop)).collect();
    assert!(expected.iter().any(|ids| ids.len() > 3) && expected.iter().any(Vec::is_empty));
    for (count, model) in [1, 2, 4, 7].into_iter().zip(MODELS) {
        let leaves = leaves("sets-leaf", count, TEXT);
        let tier = start("sets", &[("leaves", &addresses(&leaves)), ("data", TEXT), ("threading", model)]);
        let asker = TestClient::connect(&tier);
        for (words, expected) in questions.iter().zip(&expected) {
            let answer = asker.call_until_complete(Method(0), &argument(words));
            let found = SearchResult::read(&answer[2..]).unwrap();
            assert_eq!(found.total as usize, expected.len(), "{words:?}");
            assert!(found.ids().eq(expected.iter().copied()), "{words:?} under {model}");
        }
    }
}

#[test]
fn a_leaf_that_is_away_makes_answers_partial_and_nonsense_is_refused() {
    let mut leaves = leaves("sets-leaf", 3, TEXT);
    let tier = start("sets", &[("leaves", &addresses(&leaves)), ("data", TEXT), ("threading", "ADB1-2-1")]);
    let asker = TestClient::connect(&tier);
    let question = argument(&[name(60)]);
    let whole = asker.call_until_complete(Method(0), &question);
    assert_eq!(whole[..2], [3, 3]);
    assert_eq!(asker.call_error(Method(0), &[2, 1, b'a']), "a word that is cut short");
    assert_eq!(asker.call_error(Method(0), &[1, 0]), "a word without letters");
    leaves.pop().unwrap().stop().unwrap();
    let partial = loop {
        let answer = asker.call(Method(0), &question);
        if answer[1] < answer[0] {
            break answer;
        }
    };
    assert_eq!(partial[..2], [3, 2]);
    let total = |answer: &[u8]| SearchResult::read(&answer[2..]).unwrap().total;
    assert!(total(&partial) < total(&whole));
    // Only stop words: nothing is asked for.
    assert_eq!(asker.call(Method(0), &argument(&[name(1)])), [0; 6]);
}
