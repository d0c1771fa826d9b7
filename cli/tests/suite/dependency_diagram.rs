//! Diagram of the dependencies in ARCHITECTURE.md, generated from the table that `architecture.rs`
//! enforces. Does not contain the rules.
//!
//! `LEEWARD_UPDATE=architecture cargo test -p leeward --test suite picture` regenerates the
//! diagram.

use crate::architecture::{allowed, folder, packages, root, short};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const BEGIN_MARK: &str = "<!-- dependencies -->\n";
const END_MARK: &str = "<!-- end of dependencies -->\n";
/// Columns of the diagram.
const WIDTH: usize = 110;

/// Draws one or more lines per level, the highest first. Each crate is one level above the highest
/// that it may use.
fn diagram() -> String {
    let packages = packages();
    let names: BTreeSet<_> = packages.iter().map(|package| short(&package.name)).collect();
    let uses: BTreeMap<_, Vec<&str>> = packages
        .iter()
        .map(|package| (short(&package.name), names.iter().copied().filter(|of| allowed(package, of)).collect()))
        .collect();
    let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
    while levels.len() < names.len() {
        let known = levels.len();
        for (name, used) in &uses {
            let below: Option<Vec<_>> = used.iter().map(|of| levels.get(of).copied()).collect();
            if let Some(below) = below {
                levels.entry(name).or_insert(below.into_iter().max().map_or(0, |highest| highest + 1));
            }
        }
        assert!(levels.len() > known, "the table of allowed dependencies has a circle");
    }
    let path = |name: &str| {
        let package = packages.iter().find(|package| short(&package.name) == name).unwrap();
        folder(package).strip_prefix(root()).unwrap().display().to_string()
    };
    let mut text = String::from("```\n");
    for level in (0..=*levels.values().max().unwrap()).rev() {
        let mut here: Vec<_> = names.iter().filter(|name| levels[*name] == level).map(|name| path(name)).collect();
        here.sort();
        let mut line = format!("{level:2} ");
        for path in here {
            if line.len() + 2 + path.len() > WIDTH {
                writeln!(text, "{line}").unwrap();
                line = " ".repeat(3);
            }
            write!(line, "  {path}").unwrap();
        }
        writeln!(text, "{line}").unwrap();
    }
    text + "```\n"
}

#[test]
fn the_dependency_diagram_matches_the_table() {
    let file = root().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN_MARK).expect("a mark where the picture begins");
    let (shown, after) = rest.split_once(END_MARK).expect("a mark where the picture ends");
    let picture = diagram();
    if std::env::var("LEEWARD_UPDATE").is_ok_and(|what| what == "architecture") {
        return std::fs::write(&file, format!("{before}{BEGIN_MARK}{picture}{END_MARK}{after}")).unwrap();
    }
    assert_eq!(shown, picture, "LEEWARD_UPDATE=architecture writes the picture anew");
}

#[test]
fn the_architecture_page_is_short() {
    let words = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap().split_whitespace().count();
    assert!(words <= 1_500, "ARCHITECTURE.md has {words} words: what belongs to one folder stands in its README");
}
