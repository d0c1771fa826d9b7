//! Records three processes of a Rust program and joins their traces.
//!
//! Skipped with a reason if the run-time is not built.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod support;

use std::path::Path;
use std::process::Command;

use leeward_profile::join::{ClockSource, Joined, PartKind};
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_testkit::require::Requirement;
use support::{example, run_time};

/// Other programs on the machine can make requests slow, too.
const ATTEMPTS: usize = 6;

#[test]
fn the_slow_function_of_another_process_is_found() {
    let Some(library) = run_time() else {
        Requirement::Profiler.missing("libleeward_rt.so is not built (`make profiler`)");
        return;
    };
    let reasons: Vec<String> = (0..ATTEMPTS).map_while(|_| recorded(&library).err()).collect();
    assert!(reasons.len() < ATTEMPTS, "{reasons:#?}");
}

/// Records the processes once. An error has the reason why the function was not found.
fn recorded(library: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example("joined"))
        .env("LD_PRELOAD", library)
        .env("LEEWARD_PROFILE", format!("on,dir={}/%p", folder.path().display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut paths: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let traces: Vec<Trace> = paths.iter().map(|path| Trace::open(path, &mut ignore_progress).unwrap()).collect();
    assert_eq!(traces.len(), 3, "{paths:?}");
    let joined = Joined::new(&traces, &mut ignore_progress).unwrap();
    assert_eq!(joined.warnings(), [""; 0]);
    let mut clocks: Vec<_> = joined.processes().map(|(name, requests, clock)| (name, requests, clock.source)).collect();
    clocks.sort_by_key(|(name, ..)| *name);
    let expected = [("cache", ClockSource::SameHost), ("joined", ClockSource::Front), ("store", ClockSource::SameHost)];
    assert_eq!(clocks, expected.map(|(name, source)| (name, 500, source)));

    let mut symbols: Vec<Symbols> = traces.iter().map(|trace| Symbols::new(trace, Options::default())).collect();
    let tail = joined.tail(&mut symbols, 0.01, &mut ignore_progress).unwrap();
    assert_eq!(tail.requests, 500);
    let part = &tail.steps[0].parts[0];
    let found = tail.tail.as_ref().and_then(|tail| Some(tail.culprit.as_ref()?.function.clone())).unwrap_or_default();
    let is_found = (part.kind, part.process.as_str()) == (PartKind::Called, "store") && found.ends_with("recompute");
    if is_found { Ok(()) } else { Err(format!("{part:?}, then {found}")) }
}
