//! Golden recordings of real servers of an earlier Leeward under overload, one or more for every
//! controller. Each replays to the same decisions, to the last credit. `golden/README.md` describes
//! how they were made, and when they may be replaced.

use leeward_core::server::{RejectReason, Verdict};
use leeward_recording::{Answer, Entry, Item, Reader, Replayer};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter_map(|name| name.strip_suffix(".rec").map(String::from)).collect();
    names.sort();
    names
}

fn items(name: &str) -> Vec<Item> {
    let bytes = std::fs::read(folder().join(name).with_extension("rec")).unwrap();
    Reader::items(&bytes).collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Replays all entries; returns the replayer with its result.
fn replayed(name: &str, items: &[Item]) -> Replayer {
    let Some(Item::Header(header)) = items.first() else { panic!("{name} has no header") };
    let mut replayer = Replayer::from_header(header, &leeward_controllers::builtin())
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    for item in items {
        if let Item::Entry(entry) = item {
            replayer.step(entry).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    replayer
}

/// Checks the minimum content of a recording, without which its replay would mean little.
fn check(name: &str, items: &[Item]) {
    let replayer = replayed(name, items);
    if let Some(difference) = replayer.difference() {
        panic!("{name} no longer decides as it did: {difference}");
    }
    let counts = replayer.counts();
    assert!(matches!(items.last(), Some(Item::End(end)) if end.entries == counts.entries), "{name} has no end");
    assert!(counts.opened == 20 && counts.requests > 100 && counts.ticks > 40, "{name}: {counts:?}");
    assert!(counts.compared > counts.requests + counts.replies, "{name}: {counts:?}");
}

#[test]
fn old_recordings_replay_to_the_same_decisions() {
    let names = names();
    for algorithm in leeward_controllers::builtin().algorithms() {
        // `NAME.rec`, or `NAME-VARIANT.rec`: names of algorithms may contain a `-`, too.
        let own = |name: &&String| {
            name.strip_prefix(algorithm.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        assert!(names.iter().any(|name| own(&name)), "no golden recording of {}", algorithm.name);
    }
    for name in names {
        check(&name, &items(&name));
    }
}

/// Canary: a single different verdict among 10,000 is detected.
#[test]
fn a_changed_decision_is_seen() {
    let mut items = items("codel");
    let verdicts = items.iter_mut().filter_map(|item| match item {
        Item::Entry(Entry::Session(call)) if matches!(call.answer, Answer::Verdict(_)) => Some(&mut call.answer),
        _ => None,
    });
    let verdict = verdicts.last().unwrap();
    *verdict = match verdict {
        Answer::Verdict(Verdict::Admit) => Answer::Verdict(Verdict::Reject(RejectReason::Delay)),
        _ => Answer::Verdict(Verdict::Admit),
    };
    assert!(replayed("codel", &items).difference().is_some());
}
