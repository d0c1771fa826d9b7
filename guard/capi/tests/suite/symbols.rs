//! The shared library: its symbols are the committed ones, and it is never unloaded.

use crate::support::{cc, folder, run, shared_library};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Names in the version script.
fn committed() -> BTreeSet<String> {
    let script = fs::read_to_string(folder().join("package/leeward.map")).unwrap();
    let names = script.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names.filter(|name| name.starts_with("lw_")).map(String::from).collect()
}

/// Names that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(folder().join("include/leeward.h")).unwrap();
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let words = code.split(|of: char| !(of.is_ascii_alphanumeric() || of == '_' || of == '('));
    words
        .filter_map(|word| word.strip_suffix('(').or_else(|| word.split_once('(').map(|(name, _)| name)))
        .filter(|name| name.starts_with("lw_"))
        .map(String::from)
        .collect()
}

#[test]
fn the_shared_library_has_the_committed_symbols_with_their_versions() {
    let out = shared_library();
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(out.path().join("libleeward.so.0")));
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter(|line| line.contains(" T "))
        .filter_map(|line| line.split(' ').next_back())
        .map(String::from)
        .collect();
    let expected: BTreeSet<String> = committed().iter().map(|name| format!("{name}@@LEEWARD_0.1")).collect();
    assert_eq!(exported, expected);
    assert!(symbols.lines().all(|line| line.contains(" T ") || line.contains(" A LEEWARD_0.1")), "{symbols}");
    assert_eq!(declared(), committed(), "leeward.map has the names of leeward.h");
}

#[test]
fn a_library_that_is_closed_stays_loaded() {
    let out = shared_library();
    let program = out.path().join("program");
    let source = folder().join("tests/c/unload.c");
    run(cc("gcc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).arg("-ldl"));
    let output = run(Command::new(&program).arg(out.path().join("libleeward.so.0")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "as it should be\n");
}
