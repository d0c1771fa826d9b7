//! Records a Rust program from end to end: built with the attribute, run with the C run-time
//! preloaded, and its trace read.
//!
//! Skipped with a reason if the run-time is not built.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod support;

use std::path::Path;
use std::process::Command;

use leeward_profile::analysis::Selection;
use leeward_profile::analysis::tail::tail;
use leeward_profile::stats::{Collector, Options, SpanKind};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_testkit::require::{Requirement, retry_if_busy};
use support::{example, run_time};

#[test]
fn without_the_run_time_nothing_happens() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::new(example("served")).current_dir(folder.path()).env("LEEWARD_PROFILE", "on").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "not recordable\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn calls_and_requests_are_recorded() {
    let Some(library) = run_time() else {
        Requirement::Profiler.missing("libleeward_rt.so is not built (`make profiler`)");
        return;
    };
    // If a busy machine stops the run-time's clock for long, calls are missing, and the recording
    // notes it.
    retry_if_busy(|| {
        let (mut last, mut steady) = (String::new(), false);
        for _ in 0..5 {
            match recorded(&library) {
                Ok(()) => return Ok(()),
                Err((why, clock_was_steady)) => {
                    steady |= clock_was_steady;
                    last = why;
                }
            }
        }
        assert!(!steady, "{last}");
        Err("the clock's thread was kept from its CPU in every recording".into())
    });
}

/// Records the program once. An error has the reason, and whether the recording noted no problem.
fn recorded(library: &Path) -> Result<(), (String, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let output = Command::new(example("served"))
        .env("LD_PRELOAD", library)
        .env("LEEWARD_PROFILE", format!("on,dir={}", path.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "recordable\n");

    let options = Options { by_caller: false, ..Options::default() };
    let mut collector = Collector::new(&options);
    let trace = Trace::open_with(&path, &mut ignore_progress, |event| collector.event(event)).unwrap();
    assert!(trace.damage().is_none(), "{}", trace.damage());
    let steady = trace.notes().iter().all(|note| note.level == 0);
    let mut symbols = Symbols::new(&trace, symbols::Options::default());
    let rows = collector.rows(&mut symbols, &options, 0);
    let count = |name: &str| {
        rows.iter().find(|row| row.sort == SpanKind::Call && row.name.ends_with(name)).map_or(0, |row| row.count)
    };
    // Untraced and skipped functions never appear.
    assert!(count("unseen") == 0 && count("spin") == 0, "{rows:?}");
    for (name, expected) in
        [("served::handle", 1000), ("Store::look_up", 1000), ("Store::recompute", 10), ("served::panicking", 10)]
    {
        let counted = count(name);
        if counted * 10 < expected * 9 || counted > expected {
            return Err((format!("{name}: {counted} of {expected} in {rows:#?}"), steady));
        }
    }
    let found = tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress).unwrap();
    let first = found.findings.first().map_or("nothing", |finding| finding.text.as_str());
    if found.requests != 1000 || !first.contains("recompute") {
        return Err((format!("{} requests; {first}", found.requests), steady));
    }
    Ok(())
}
