//! No text makes the parsers panic: neither random ones nor damaged scenarios.

use leeward_lab::claims::Expression;
use leeward_lab::{Scenario, builtin_scenarios};
use proptest::prelude::*;
use std::path::Path;

/// Parses a text, and checks that an error is one line.
fn read(text: &str, overrides: &[String], quick: bool) {
    if let Err(error) =
        Scenario::parse("fuzz.toml", text, Path::new("/nonexistent"), overrides, quick, &leeward_controllers::builtin())
    {
        let message = error.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// Words of the format, so that random texts get beyond the first line.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("[workload]\n".to_string()),
        Just("[run]\n".to_string()),
        Just("[quick]\n".to_string()),
        Just("[[controller]]\n".to_string()),
        Just("[[controller.tuned]]\n".to_string()),
        Just("[[workload.shift]]\n".to_string()),
        Just("[[claim]]\n".to_string()),
        Just("name = \"seda\"\n".to_string()),
        Just("clients = ".to_string()),
        Just("demand = [".to_string()),
        Just("\"1x\", ".to_string()),
        Just("]\n".to_string()),
        Just("params = {".to_string()),
        Just("}\n".to_string()),
        Just("measure = \"max(".to_string()),
        Just("1e999\n".to_string()),
        Just("0x7fffffffffffffff\n".to_string()),
        "[ -~\n]{0,8}",
    ];
    proptest::collection::vec(word, 0..30).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_texts(text in any::<String>(), set in any::<String>(), quick in any::<bool>()) {
        read(&text, &[set], quick);
    }

    #[test]
    fn texts_of_random_keywords(text in words(), quick in any::<bool>()) {
        read(&text, &[], quick);
    }

    #[test]
    fn damaged_scenarios(
        which in 0usize..1000,
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[ -~\n]{0,6}"), 1..4),
        quick in any::<bool>(),
    ) {
        let all = builtin_scenarios();
        let mut text: Vec<char> = all[which % all.len()].text.chars().collect();
        for (at, length, put) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        read(&text.into_iter().collect::<String>(), &[], quick);
    }

    #[test]
    fn overrides(path in "(workload|run|controller|server|claim|plot)(\\.[a-z0-9]{0,8}){0,3}", value in any::<String>()) {
        read(builtin_scenarios()[1].text, &[format!("{path}={value}")], true);
    }

    #[test]
    fn claims(text in any::<String>(), shaped in "[-+*/(){},.=<>! a-z0-9_]{0,60}") {
        let _ = Expression::parse(&text);
        let _ = Expression::parse(&shaped);
        let _ = Expression::parse(&format!("max(goodput_rps{{{shaped}}})"));
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("(", ")"), ("-", ""), ("min(", ")")] {
        let text = format!("{}1{}", open.repeat(1_000), close.repeat(1_000));
        assert!(Expression::parse(&text).is_err());
    }
    read(&"[".repeat(100_000), &[], false);
    read(&format!("id = {}", "[".repeat(100_000)), &[], false);
    read(&format!("{}=1", "a.".repeat(50_000) + "a"), &[], false);
    let deep = format!("{}=1", "a.".repeat(4_900) + "a");
    read("id = \"x\"", &[deep], false);
}
