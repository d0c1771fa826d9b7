//! A process that may open few files: what the operator is told, and when the proxy does not start.
//! Does not contain clients.

use crate::harness::{Backend, connect, start_with, text};
use leeward_observe::Source;
use leeward_testkit::wait::until;
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
fn the_operator_is_told_of_fewer_connections_and_when_all_are_open() {
    let Some(said) = limited(70, "the_operator_is_told_of_fewer_connections_and_when_all_are_open") else {
        let backend = Backend::echo();
        let proxy = start_with(&text(&[backend.address], "connections = 500")).expect("a proxy");
        for _ in 0..3 {
            // Each time, the only connections that there may be are open, and then one ends.
            let mut clients = [connect(&proxy), connect(&proxy), connect(&proxy)];
            clients.iter_mut().for_each(|client| assert_eq!(client.get("/").text(), "/"));
            drop(clients);
            until("they have ended", || proxy.admission().snapshot().connections == Some(0));
        }
        return;
    };
    assert_eq!(said.matches("`connections` is 3 instead of 500").count(), 1, "{said}");
    assert!(said.contains("70 files") && said.contains("to 1064"), "{said}");
    assert_eq!(said.matches("all 3 `connections` are open").count(), 1, "once a minute: {said}");
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
