//! Paths and links in the documents exist. Does not check words and comments of the code
//! (`vocabulary.rs`), or the layout and the dependencies (`architecture.rs`).

use crate::architecture::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Future folders, which documents may name before they exist. Empty when all of them exist.
const PENDING: [&str; 0] = [];

/// Folders of the top level that contain nothing of the project's own.
const SKIPPED_FOLDERS: [&str; 3] = ["target", "results", "node_modules"];

/// Removed folders: a document that names one of them is out of date.
const REMOVED_FOLDERS: [&str; 1] = ["crates"];

/// Current folders of the top level.
pub(super) fn folders() -> Vec<String> {
    let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.is_dir()).filter_map(|path| path.file_name()?.to_str().map(String::from));
    folders
        .filter(|name| (!name.starts_with('.') || name == ".cargo") && !SKIPPED_FOLDERS.contains(&name.as_str()))
        .collect()
}

/// Files below `folder` with this extension.
pub(super) fn files(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                files(&path, extension, into);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            into.push(path);
        }
    }
}

fn is_pending(path: &str) -> bool {
    PENDING.iter().any(|pending| path.starts_with(pending))
}

/// Documents for readers, with their folders relative to the root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join("docs"), "md", &mut found);
    found.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    found
}

/// Paths in backticks that start with one of our folders, without patterns and placeholders.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split('`').skip(1).step_by(2);
    let words = pieces.filter(|piece| !piece.contains([' ', '*', '<', '{', '$', '…']));
    // Each crate also has a folder `tests`.
    let named = folders().into_iter().filter(|name| name != "tests").chain(REMOVED_FOLDERS.map(String::from));
    let named: Vec<String> = named.map(|name| name + "/").collect();
    words.filter(move |word| named.iter().any(|folder| word.starts_with(folder.as_str()) && word.len() > folder.len()))
}

/// Links to files of this repository and to headings in them: file (empty for the same one) and
/// heading.
fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let ours = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    ours.map(|target| target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading))))
}

/// True if `text` has a heading that a link with this name refers to.
fn has_heading(text: &str, name: &str) -> bool {
    let slug = |heading: &str| -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
    };
    text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line.trim_start_matches('#')) == name)
}

#[test]
fn documents_name_files_that_exist() {
    let mut missing = Vec::new();
    let (mut named, mut linked) = (0, 0);
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let document = path.strip_prefix(root()).unwrap().display();
        for name in paths(&text) {
            named += 1;
            if !root().join(name).exists() && !is_pending(name) {
                missing.push(format!("{document}: `{name}`"));
            }
        }
        for (file, heading) in links(&text) {
            linked += 1;
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let exists = match heading {
                Some(heading) => fs::read_to_string(&target).is_ok_and(|text| has_heading(&text, heading)),
                None => target.exists(),
            };
            if !exists {
                missing.push(format!("{document}: ({file}#{})", heading.unwrap_or_default()));
            }
        }
    }
    assert!(named > 50 && linked > 50, "the search for paths is broken: {named} names, {linked} links");
    assert!(missing.is_empty(), "documents name what does not exist:\n{}", missing.join("\n"));
}
