//! No files of a crate import each other in a cycle, so that a reader can read them in one order.
//! Does not check crates (`architecture.rs`).

use super::architecture::{folder, packages, rust_files, short};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Known cycles that remain, by crate. Remove a cycle that is gone; never add one.
const KNOWN: [(&str, &[&str]); 4] = [
    ("rpc", &["client/driver/socket.rs", "client/driver/socket_connection.rs"]),
    ("rpc", &["server/executor.rs", "server/protocol.rs"]),
    ("rpc", &["tier/calls.rs", "tier/replies.rs", "tier/service.rs"]),
    ("rpc", &["tier/runtime.rs", "tier/server.rs", "tier/source.rs"]),
];

/// Tokens of a source, as names, `::` and single characters, without comments and unit tests.
fn tokens(source: &str) -> Vec<&str> {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    let mut tokens = Vec::new();
    for line in code.lines() {
        let mut rest = line.split("//").next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let ends = |c: char| !c.is_alphanumeric() && c != '_';
            let length = match rest.find(ends).unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            tokens.push(&rest[..length]);
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Paths that start with `crate`, `super` or `self`, in `use` and elsewhere; each branch of a `use`
/// is a path.
fn paths(source: &str) -> Vec<Vec<&str>> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let begins = matches!(tokens[at], "crate" | "super" | "self") && tokens.get(at + 1) == Some(&"::");
        if begins && !(at > 0 && matches!(tokens[at - 1], "::" | "$")) {
            collect_branch(&tokens, at, Vec::new(), &mut found);
        }
    }
    found
}

/// Collects the paths that continue `path` at the token `at`. Returns the index after them.
fn collect_branch<'a>(
    tokens: &[&'a str],
    mut at: usize,
    mut path: Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> usize {
    while let Some(token) = tokens.get(at).filter(|token| **token != "{") {
        path.push(token);
        at += 1;
        if tokens.get(at) != Some(&"::") {
            found.push(path);
            return if tokens.get(at) == Some(&"as") { at + 2 } else { at };
        }
        at += 1;
    }
    while matches!(tokens.get(at), Some(&("{" | ","))) {
        at = collect_branch(tokens, at + 1, path.clone(), found);
    }
    at + 1
}

/// Module of a file below `src`; `None` for a root, which only names its parts.
fn module(file: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    (!matches!(*parts.last()?, "mod" | "lib" | "main")).then_some(parts)
}

/// Groups of files that import each other, directly or indirectly. `files` maps paths below `src`
/// to texts.
fn cycles(files: &BTreeMap<String, String>) -> BTreeSet<Vec<&str>> {
    let modules: BTreeMap<Vec<&str>, &str> =
        files.keys().filter_map(|file| Some((module(file)?, file.as_str()))).collect();
    let imported = |module: &[&str], path: &[&str]| {
        let up = path.iter().take_while(|part| **part == "super").count();
        let base = if path[0] == "crate" { 0 } else { module.len().saturating_sub(up) };
        let own = path.iter().skip_while(|part| matches!(**part, "crate" | "super" | "self"));
        let whole: Vec<&str> = module[..base].iter().chain(own).copied().collect();
        (1..=whole.len()).rev().find_map(|length| modules.get(&whole[..length]).copied())
    };
    let imports: BTreeMap<&str, BTreeSet<&str>> = modules
        .iter()
        .map(|(module, file)| (*file, paths(&files[*file]).iter().filter_map(|path| imported(module, path)).collect()))
        .collect();
    let reached = |from: &str| {
        let (mut reached, mut waiting) = (BTreeSet::new(), Vec::from_iter(&imports[from]));
        while let Some(file) = waiting.pop() {
            if reached.insert(*file) {
                waiting.extend(&imports[file]);
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (*file, reached(file))).collect();
    let group = |of: &str| reached[of].iter().copied().filter(|file| reached[file].contains(of)).collect::<Vec<_>>();
    imports.keys().map(|file| group(file)).filter(|group| group.len() > 1).collect()
}

/// Sources below a folder, by their paths in it.
fn sources(src: &Path) -> BTreeMap<String, String> {
    let mut files = Vec::new();
    if src.is_dir() {
        rust_files(src, &mut files);
    }
    let name = |file: &Path| file.strip_prefix(src).unwrap().to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), std::fs::read_to_string(file).unwrap())).collect()
}

#[test]
fn no_files_import_each_other() {
    let mut found = BTreeSet::new();
    for package in packages() {
        let files = sources(&folder(&package).join("src"));
        for group in cycles(&files) {
            found.insert((short(&package.name).to_string(), group.join(" ")));
        }
    }
    let known = KNOWN.map(|(name, group)| (name.to_string(), group.join(" ")));
    let known = BTreeSet::from(known);
    let (new, gone) = (found.difference(&known).collect::<Vec<_>>(), known.difference(&found).collect::<Vec<_>>());
    assert!(new.is_empty(), "files that import each other; move to a file below both what both need: {new:?}");
    assert!(gone.is_empty(), "circles that are gone; take them from `KNOWN`: {gone:?}");
}

#[test]
fn a_planted_import_cycle_is_found() {
    let with = |last: &str| {
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "// use crate::b::c::Note;\nuse std::fmt;\npub use crate::b::{self, c::{C as D}, deep::*};"),
            ("b/mod.rs", "mod c;\nmod deep;"),
            ("b/c.rs", "use super::deep::Deep;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}"),
            ("b/deep.rs", last),
        ];
        let files = files.map(|(file, text)| (file.to_string(), text.to_string())).into();
        cycles(&files).into_iter().map(|group| group.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(with("use $crate::a; use self::own::Own;"), [""; 0]);
    assert_eq!(with("use super::c::C;"), ["b/c.rs b/deep.rs"]);
    for whole in ["use super::super::a::A;", "use {std::fs, crate::{a::A, b}};", "fn f() -> crate::a::A {}"] {
        assert_eq!(with(whole), ["a.rs b/c.rs b/deep.rs"], "{whole}");
    }
}
