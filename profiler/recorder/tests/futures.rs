//! Records a Tokio program from end to end: its requests are futures, and what they awaited is
//! named.
//!
//! Skipped with a reason if the run-time is not built.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::{Path, PathBuf};
use std::process::Command;

use leeward_profile::analysis::Selection;
use leeward_profile::analysis::tail::{Finding, tail};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_testkit::require::{Requirement, retry_if_busy};

/// Returns the folder of this build: `target/debug`.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_path_buf()
}

fn run_time() -> Option<PathBuf> {
    let named = std::env::var_os("LEEWARD_PROFILER_DIR").map(PathBuf::from);
    let folders = named.into_iter().chain([built().join("../profiler")]);
    folders.map(|folder| folder.join("libleeward_rt.so")).find(|file| file.is_file())
}

#[test]
fn a_future_is_one_request_over_its_polls_and_waits() {
    let Some(library) = run_time() else {
        Requirement::Profiler.missing("libleeward_rt.so is not built (`make profiler`)");
        return;
    };
    retry_if_busy(|| recorded(&library).or_else(|_| recorded(&library)));
}

/// Records the program once; an error is what the trace lacks.
fn recorded(library: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let program = built().join("examples/awaits");
    let output = Command::new(program)
        .env("LD_PRELOAD", library)
        .env("LEEWARD_PROFILE", format!("on,dir={}", path.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "recordable\n");

    let trace = Trace::open(&path, &mut ignore_progress).unwrap();
    assert!(trace.damage().is_none(), "{}", trace.damage());
    let mut symbols = Symbols::new(&trace, symbols::Options::default());
    let found = tail(&trace, &mut symbols, &Selection::Marked, 0.02, &mut ignore_progress).unwrap();
    assert_eq!((found.requests, found.unfinished), (200, 0));
    let idle = |finding: &&Finding| ["park", "epoll", "mio"].iter().any(|word| finding.cause.contains(word));
    assert!(found.findings.iter().find(idle).is_none(), "{:?}", found.findings);

    // Each request awaits the backend, so the others' time is known even if the machine is busy.
    let ready = found.findings.iter().find(|finding| finding.cause == "ready, but not polled");
    let Some(ready) = ready else { return Err(format!("{:#?}", found.findings)) };
    let names_it = |name: &String| name.contains("blocks_the_worker");
    let is_named = ready.workers.iter().any(|worker| worker.path.iter().any(names_it));
    if is_named { Ok(()) } else { Err(format!("{ready:#?}")) }
}
