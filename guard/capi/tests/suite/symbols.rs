//! The libraries: their symbols are the committed ones, and the shared one is never unloaded.

use crate::support::{cc, folder, libraries, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Names in the version script.
fn committed() -> BTreeSet<String> {
    let script = fs::read_to_string(folder().join("package/leeward.map")).unwrap();
    let names = script.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names.filter(|name| name.starts_with("lw_")).map(String::from).collect()
}

/// Lines of `nm` with the symbols that a library gives to others.
fn defined(library: &Path, flags: &[&str]) -> String {
    let output = run(Command::new("nm").args(flags).arg("--defined-only").arg(library));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names of the functions in such lines.
fn functions(symbols: &str) -> BTreeSet<String> {
    let lines = symbols.lines().filter(|line| line.contains(" T "));
    lines.filter_map(|line| line.split(' ').next_back()).map(String::from).collect()
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
    let out = libraries();
    let symbols = defined(&out.path().join("libleeward.so.0"), &["-D"]);
    let expected: BTreeSet<String> = committed().iter().map(|name| format!("{name}@@LEEWARD_0.1")).collect();
    assert_eq!(functions(&symbols), expected);
    assert!(symbols.lines().all(|line| line.contains(" T ") || line.contains(" A LEEWARD_0.1")), "{symbols}");
    assert_eq!(declared(), committed(), "leeward.map has the names of leeward.h");
}

#[test]
fn the_static_library_can_be_linked_beside_any_other() {
    let symbols = defined(&libraries().path().join("libleeward.a"), &["-g"]);
    assert_eq!(functions(&symbols), committed());
    assert_eq!(symbols.lines().filter(|line| line.contains(' ')).count(), committed().len(), "{symbols}");
}

#[test]
fn a_library_that_is_closed_stays_loaded() {
    let out = libraries();
    let program = out.path().join("program");
    let source = folder().join("tests/c/unload.c");
    run(cc("gcc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).arg("-ldl"));
    let output = run(Command::new(&program).arg(out.path().join("libleeward.so.0")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "as it should be\n");
}
