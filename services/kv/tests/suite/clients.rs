//! Real clients against the port: libmemcached's capability test, and pymemcache.

use crate::support::{serve, store};
use leeward_testkit::require::Requirement;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs a program; `None` if it is not installed.
fn run(command: &mut Command, needed: &str) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Requirement::Memcached.missing(needed);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn libmemcacheds_capability_test_passes() {
    let server = serve(&store());
    let port = server.address().port().to_string();
    let mut command = Command::new("memccapable");
    command.args(["-h", "127.0.0.1", "-p", &port, "-a", "-t", "10"]);
    if let Some(output) = run(&mut command, "there is no memccapable here (Debian: libmemcached-tools)") {
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("All tests passed"), "{text}");
    }
    server.stop().unwrap();
}

/// Returns a Python with pymemcache: the system's, or a virtual environment under the target
/// folder, which needs the package index.
fn python() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pymemcache");
    let python = folder.join("bin/python");
    let has_it = |python: &PathBuf| {
        Command::new(python).args(["-c", "import pymemcache"]).output().is_ok_and(|output| output.status.success())
    };
    // Debian's own Python has Debian's packages; another one in the path may not.
    let systems = ["python3", "/usr/bin/python3"].map(PathBuf::from);
    if let Some(found) = [python.clone()].into_iter().chain(systems).find(has_it) {
        return Some(found);
    }
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(&folder), "there is no python3 here")?;
    if made.status.success() {
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--timeout", "10", "--retries", "1", "pymemcache==4.0.0"]);
        let _ = install.output();
    }
    let found = has_it(&python).then_some(python);
    if found.is_none() {
        Requirement::Memcached.missing("pymemcache is not here and can't be installed (`scripts/setup kv`)");
    }
    found
}

#[test]
fn pymemcache_works() {
    let Some(python) = python() else { return };
    let server = serve(&store());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pymemcache_session.py");
    let port = server.address().port().to_string();
    let output = Command::new(python).arg(script).arg(port).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.trim() == "fine", "{text}");
    server.stop().unwrap();
}
