//! A process that may open few files: what the operator is told, and when the proxy does not start.
//! Does not contain clients.

use crate::harness::{start_with, text};
use std::process::Command;

/// Set in a process that runs one of these tests under a limit of its own.
const LIMITED: &str = "LEEWARD_TEST_LIMITED";

/// What a test says on stderr, run by its name in a process that may open so many files; `None`:
/// this is that process.
fn limited(descriptors: u32, test: &str) -> Option<String> {
    if std::env::var_os(LIMITED).is_some() {
        return None;
    }
    let run = format!("ulimit -n {descriptors}; exec \"$0\" --exact --nocapture \"descriptors::{test}\"");
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("sh").args(["-c", &run]).arg(program).env(LIMITED, "1").output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    Some(said)
}

#[test]
fn a_proxy_that_cannot_have_all_its_threads_does_not_start() {
    let Some(said) = limited(20, "a_proxy_that_cannot_have_all_its_threads_does_not_start") else {
        match start_with(&text(&["127.0.0.1:1"], "threads = 8")) {
            Ok(_) => eprintln!("it listens"),
            Err(error) => eprintln!("{error}"),
        }
        return;
    };
    assert!(said.contains("can't start the proxy: ") && !said.contains("it listens"), "{said}");
}
