//! The rules of prose that a machine can check: how a doc comment begins, and that paths and links of the documents exist.
//! Never here: the layout and the dependencies (`architecture.rs`).

use std::fs;
use std::path::{Path, PathBuf};

/// First words of a doc comment that leave its subject to the code below it.
const FORBIDDEN: [&str; 11] =
    ["What", "Who", "Whose", "Whom", "It", "One", "Whoever", "Whatever", "Whichever", "Those", "They"];

/// Folders that are about to come: their comments are not checked, and documents may name them before they exist. Empty
/// once they stand.
const PENDING: [&str; 0] = [];

/// Folders of the top level that hold nothing of the project's own.
const SKIPPED_FOLDERS: [&str; 3] = ["target", "results", "node_modules"];

/// Folders that have gone: a document that names one of them is out of date.
const REMOVED_FOLDERS: [&str; 1] = ["crates"];

/// Folders of the top level, as they stand.
fn folders() -> Vec<String> {
    let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.is_dir()).filter_map(|path| path.file_name()?.to_str().map(String::from));
    folders
        .filter(|name| (!name.starts_with('.') || name == ".cargo") && !SKIPPED_FOLDERS.contains(&name.as_str()))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap().to_path_buf()
}

/// Files below `folder` with this extension.
fn files(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extension, into);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            into.push(path);
        }
    }
}

/// Text of a doc comment's line; `None` for any other line.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    if text.starts_with('/') { None } else { Some(text.trim()) }
}

/// Line numbers and texts of the doc comments in `source` that begin with a forbidden word.
fn find_riddles(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in source.lines().enumerate() {
        let text = doc(line);
        if let Some(text) = text.filter(|_| !inside) {
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if FORBIDDEN.contains(&first) {
                found.push((number + 1, text));
            }
        }
        inside = text.is_some();
    }
    found
}

fn is_pending(path: &str) -> bool {
    PENDING.iter().any(|pending| path.starts_with(pending))
}

#[test]
fn the_check_finds_riddles_and_nothing_else() {
    let source =
        "/// What is counted.\nstruct A;\n/// A count.\n/// One of many.\n//// Who knows.\n    //! It's so.\n// One\n";
    assert_eq!(find_riddles(source), [(1, "What is counted."), (6, "It's so.")]);
}

#[test]
fn doc_comments_name_their_subject() {
    let mut sources = Vec::new();
    for folder in folders() {
        files(&root().join(folder), "rs", &mut sources);
    }
    assert!(sources.len() > 300, "the search for files is broken");
    let mut found = Vec::new();
    for path in sources {
        let source = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if is_pending(&name) {
            continue;
        }
        found.extend(find_riddles(&source).into_iter().map(|(line, text)| format!("{name}:{line}: {text}")));
    }
    assert!(
        found.is_empty(),
        "a doc comment begins with a noun phrase or a verb and names its subject (CONTRIBUTING.md):\n{}",
        found.join("\n")
    );
}

/// Documents for readers, with their folders relative to the root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join("docs"), "md", &mut found);
    found.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    found
}

/// Paths in backticks that begin with one of our folders. Patterns and placeholders are left out.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split('`').skip(1).step_by(2);
    let words = pieces.filter(|piece| !piece.contains([' ', '*', '<', '{', '$', '…']));
    // Each crate has a folder `tests`, too.
    let named = folders().into_iter().filter(|name| name != "tests").chain(REMOVED_FOLDERS.map(String::from));
    let named: Vec<String> = named.map(|name| name + "/").collect();
    words.filter(move |word| named.iter().any(|folder| word.starts_with(folder.as_str()) && word.len() > folder.len()))
}

/// Links to files of this repository and to headings in them: file (empty for the same one) and heading.
fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let ours = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    ours.map(|target| target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading))))
}

/// Whether `text` has a heading that a link names in this way.
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
