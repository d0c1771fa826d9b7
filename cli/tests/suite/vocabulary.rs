//! The words of the code: no definition uses a banned noun, the glossary and the decisions agree
//! with the code, comments fit in 100 columns, and the ledger of files that were read for their
//! prose agrees with the tree. Does not contain rules of documents (`prose.rs`), layout and
//! dependencies (`architecture.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::architecture::root;
use super::prose::{files, folders};

/// Words that stand in no name of a type, trait, module, function, method, constant or field. The
/// field has words for them: see `docs/glossary.md`.
const BANNED: &str = "\
    audience bystander census chatter chatty crew deaf desk drowsy duty fate farewell guest hearsay hunt knot \
    lobby miser mood newcomer nonsense outlet parcel purse ration rehearsal rehearsed rehearses stranger strangers \
    talker tide twin unlawful visit whom whose wish";

/// Words that are no type: participles, pronouns and adverbs say nothing of what a thing is.
const NO_TYPE: &str = "\
    After Alone Always Asked Before Began Came Elsewhere Even Far Gone Heard Here Inside Near Next Nobody Owed Ran \
    Said Seen Still Taken Told What When Which";

/// Names that stay, each with its reason.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("TwinArgs", "arguments of the command `leeward twin`"),
    ("twin", "the command `leeward twin`"),
    ("TWIN", "help of the command `leeward twin`"),
    ("visit", "the visitor of an expression tree"),
];

/// The ledger: a path and the commit in which the file was read, per line.
const LEDGER: &str = "docs/prose-ledger.csv";

/// Columns that a line of a comment may have.
const COLUMNS: usize = 100;

/// A name that the code defines: the keyword before it, and the name.
#[derive(Debug, PartialEq, Eq)]
struct Definition<'a> {
    keyword: &'a str,
    name: &'a str,
}

/// The word at the beginning of `text`.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The definition in a line of code, if there is one: of an item, or of a field.
fn definition(line: &str) -> Option<Definition<'_>> {
    let mut rest = line.trim_start();
    if rest.starts_with("//") {
        return None;
    }
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after.trim_start();
        if rest.starts_with('(') {
            rest = rest.split_once(')')?.1.trim_start();
        }
    }
    let is_public = line.trim_start().starts_with("pub");
    for modifier in ["default ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        if let Some(after) = rest.strip_prefix(modifier).filter(|after| after.contains("fn ")) {
            rest = after;
        }
    }
    for keyword in ["struct", "enum", "trait", "type", "mod", "fn", "const", "static", "macro_rules!"] {
        if let Some(after) = rest.strip_prefix(keyword).and_then(|after| after.strip_prefix(' ')) {
            let name = word(after.trim_start_matches("mut "));
            return (!name.is_empty()).then_some(Definition { keyword, name });
        }
    }
    let name = word(rest);
    let is_field = is_public && !name.is_empty() && rest[name.len()..].starts_with(": ");
    is_field.then_some(Definition { keyword: "field", name })
}

/// The words of a name, in lower case: of `LeafCounts` and of `leaf_counts`, *leaf* and *counts*.
fn words(name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' {
            was_lower = false;
            found.push(String::new());
            continue;
        }
        if found.is_empty() || (c.is_uppercase() && was_lower) {
            found.push(String::new());
        }
        was_lower = !c.is_uppercase();
        found.last_mut().unwrap().extend(c.to_lowercase());
    }
    found.retain(|word| !word.is_empty());
    found
}

/// Why the vocabulary refuses a definition.
fn banned(definition: &Definition<'_>) -> Option<String> {
    let Definition { keyword, name } = definition;
    if EXCEPTIONS.iter().any(|(exception, _)| exception == name) {
        return None;
    }
    if ["struct", "enum", "trait"].contains(keyword) && NO_TYPE.split(' ').any(|word| word == *name) {
        return Some(format!("{keyword} {name}: no noun"));
    }
    words(name)
        .into_iter()
        .find(|word| BANNED.split(' ').any(|banned| banned == word))
        .map(|word| format!("{keyword} {name}: `{word}`"))
}

/// Extensions of all languages whose prose is in the ledger.
const LANGUAGES: [&str; 9] = ["rs", "c", "h", "cc", "cpp", "py", "pyi", "js", "mjs"];

/// Rust sources of the repository with their paths from its root.
fn sources() -> BTreeMap<String, String> {
    sources_in(&["rs"])
}

/// Sources with these extensions, with their paths from the root.
fn sources_in(extensions: &[&str]) -> BTreeMap<String, String> {
    let mut paths = Vec::new();
    for (folder, extension) in folders().iter().flat_map(|folder| extensions.iter().map(move |one| (folder, one))) {
        files(&root().join(folder), extension, &mut paths);
    }
    let named = paths.into_iter().map(|path| {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_string();
        (name, fs::read_to_string(&path).unwrap())
    });
    named.collect()
}

#[test]
fn definitions_are_found_and_judged() {
    let found = |line| definition(line).map(|found| (found.keyword, found.name));
    assert_eq!(found("    pub(crate) async fn poll_once(&self) {"), Some(("fn", "poll_once")));
    assert_eq!(found("pub const MAX: usize = 3;"), Some(("const", "MAX")));
    assert_eq!(found("    pub oldest: Nanos,"), Some(("field", "oldest")));
    assert_eq!(found("    /// struct Purse"), None);
    assert_eq!(found("    let purse = 3;"), None);
    assert_eq!(words("LeafCounts"), ["leaf", "counts"]);
    assert_eq!(words("MAX_LEAVES"), ["max", "leaves"]);
    assert!(banned(&Definition { keyword: "struct", name: "LeafPurse" }).is_some());
    assert!(banned(&Definition { keyword: "enum", name: "Told" }).is_some());
    assert!(banned(&Definition { keyword: "fn", name: "tell_guest" }).is_some());
    assert!(banned(&Definition { keyword: "struct", name: "LeafCredits" }).is_none());
    assert!(banned(&Definition { keyword: "struct", name: "TwinArgs" }).is_none());
}

#[test]
fn no_definition_uses_a_banned_word() {
    let mut found = Vec::new();
    let mut definitions = 0;
    for (path, source) in sources() {
        for (number, line) in source.lines().enumerate() {
            let Some(definition) = definition(line) else { continue };
            definitions += 1;
            found.extend(banned(&definition).map(|why| format!("{path}:{}: {why}", number + 1)));
        }
    }
    assert!(definitions > 10_000, "the search for definitions is broken: {definitions}");
    assert!(found.is_empty(), "names are the field's words (docs/glossary.md):\n{}", found.join("\n"));
}

/// Names of types in the third column of the glossary's tables.
fn glossary_names(glossary: &str) -> BTreeSet<&str> {
    let rows = glossary.lines().filter(|line| line.starts_with("| **"));
    let cells = rows.filter_map(|row| row.split('|').nth(3));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(|name| name.rsplit("::").next().unwrap()).collect()
}

#[test]
fn the_glossary_and_the_code_agree() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let names = glossary_names(&glossary);
    assert!(names.len() > 30, "the search for names is broken: {names:?}");
    let sources = sources();
    let lines = sources.iter().flat_map(|(path, source)| source.lines().map(move |line| (path, line)));
    let mut defined = BTreeSet::new();
    let mut core_traits = BTreeSet::new();
    for (path, line) in lines {
        let Some(definition) = definition(line) else { continue };
        defined.insert(definition.name);
        if path.starts_with("core/src") && definition.keyword == "trait" && line.starts_with("pub trait") {
            core_traits.insert(definition.name);
        }
    }
    let gone: Vec<_> = names.iter().filter(|name| !defined.contains(*name)).collect();
    assert!(gone.is_empty(), "the glossary names what the code does not define: {gone:?}");
    let unexplained: Vec<_> = core_traits.iter().filter(|name| !names.contains(*name)).collect();
    assert!(unexplained.is_empty(), "traits of the core that the glossary does not explain: {unexplained:?}");
}

/// Extensions of files that decisions name without a folder.
const NAMED_FILES: [&str; 9] = ["rs", "toml", "md", "py", "c", "h", "mjs", "csv", "yaml"];

/// What decisions may name: types with the sources that define or implement them, all definitions,
/// and names of files.
struct Known<'a> {
    sources: &'a BTreeMap<String, String>,
    types: BTreeMap<&'a str, BTreeSet<&'a str>>,
    defined: BTreeSet<&'a str>,
    files: BTreeSet<String>,
}

impl<'a> Known<'a> {
    fn new(sources: &'a BTreeMap<String, String>) -> Known<'a> {
        let mut known = Known { sources, types: BTreeMap::new(), defined: BTreeSet::new(), files: BTreeSet::new() };
        for (path, source) in sources {
            for line in source.lines() {
                if let Some(Definition { keyword, name }) = definition(line) {
                    known.defined.insert(name);
                    if ["struct", "enum", "trait", "type"].contains(&keyword) {
                        known.types.entry(name).or_default().insert(path);
                    }
                } else if line.starts_with("impl") {
                    // Methods of a type may be in another file.
                    let implemented = line.split(" for ").last().unwrap_or(line);
                    let implemented = implemented.trim_start_matches("impl");
                    let implemented = if implemented.starts_with('<') {
                        implemented.split_once("> ").map_or("", |(_, rest)| rest)
                    } else {
                        implemented.trim_start()
                    };
                    known.types.entry(word(implemented)).or_default().insert(path);
                }
            }
        }
        let mut paths = Vec::new();
        for folder in folders() {
            NAMED_FILES.iter().for_each(|extension| files(&root().join(&folder), extension, &mut paths));
        }
        paths.extend(fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()));
        known.files = paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        known
    }

    /// Names in backticks that do not exist: files without a folder, and `Type::name` or
    /// `leeward_crate::Name`. Paths with a folder are those of `prose.rs`.
    fn unknown(&self, text: &'a str) -> Vec<&'a str> {
        let spans = text.split('`').skip(1).step_by(2).map(|span| span.trim_end_matches("()"));
        spans.filter(|span| self.is_gone(span)).collect()
    }

    fn is_gone(&self, span: &str) -> bool {
        let is_part = |part: &str| !part.is_empty() && word(part) == part;
        if let Some((stem, extension)) = span.rsplit_once('.') {
            let is_file = NAMED_FILES.contains(&extension) && stem.split(['-', '.']).all(is_part);
            return is_file && !self.files.contains(span);
        }
        let parts: Vec<&str> = span.split("::").collect();
        let [.., of, name] = parts[..] else { return false };
        if !parts.iter().copied().all(is_part) {
            return false;
        }
        if of.starts_with("leeward_") {
            return !self.defined.contains(name);
        }
        // Names below a module, mostly of other crates, are not checked.
        let is_named = |path: &&str| {
            self.sources[*path].split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        of.starts_with(char::is_uppercase) && !self.types.get(of).is_some_and(|paths| paths.iter().any(is_named))
    }
}

#[test]
fn decisions_name_what_the_code_defines() {
    let sources = sources();
    let known = Known::new(&sources);
    let mut paths = Vec::new();
    files(&root().join("docs/decisions"), "md", &mut paths);
    // What was replaced may name what is gone.
    paths.retain(|path| !path.ends_with("superseded.md"));
    let texts: Vec<_> = paths.iter().map(|path| (path, fs::read_to_string(path).unwrap())).collect();
    let names = texts.iter().flat_map(|(_, text)| text.split('`').skip(1).step_by(2));
    assert!(names.filter(|name| name.contains("::")).count() > 30, "the search for names is broken");
    let gone = texts.iter().flat_map(|(path, text)| {
        known.unknown(text).into_iter().map(move |name| format!("{}: `{name}`", path.file_name().unwrap().display()))
    });
    let gone: Vec<_> = gone.collect();
    assert!(gone.is_empty(), "decisions name what the code does not define:\n{}", gone.join("\n"));

    let check = |text: &'static str, expected: &[&str]| assert_eq!(known.unknown(text), expected, "{text}");
    check(
        "`QueueOrder::PacketsFirst`, `QueueOrder::LettersFirst` and `Order::PacketsFirst`",
        &["QueueOrder::LettersFirst", "Order::PacketsFirst"],
    );
    check("`leeward_engine::Stream`, `leeward_engine::Waterfall`, `std::mem::take`", &["leeward_engine::Waterfall"]);
    check("`vocabulary.rs`, `no-such-file.rs`, `Vec<T>`, `1.25`, `*.rs`, `a.b`", &["no-such-file.rs"]);
}

#[test]
fn comments_fit_in_their_columns() {
    let mut found = Vec::new();
    for (path, source) in sources_in(&LANGUAGES) {
        let is_comment = |line: &str| {
            let line = line.trim_start();
            let is_rule = line.starts_with("// RUN:");
            match path.rsplit('.').next() {
                Some("py" | "pyi") => line.starts_with("# ") || line.starts_with("\"\"\""),
                Some("c" | "h") => line.starts_with("/*") || line.starts_with("* "),
                _ => line.starts_with("//") && !is_rule,
            }
        };
        let lines = source.lines().enumerate().filter(|(_, line)| is_comment(line));
        // A comment in a macro of C ends with a backslash in a far column.
        let wide = lines.filter(|(_, line)| line.trim_end_matches('\\').trim_end().chars().count() > COLUMNS);
        found.extend(wide.map(|(number, line)| format!("{path}:{}: {} columns", number + 1, line.chars().count())));
    }
    assert!(found.is_empty(), "comments have at most {COLUMNS} columns:\n{}", found.join("\n"));
}

#[test]
fn the_ledger_and_the_tree_agree() {
    let ledger = fs::read_to_string(root().join(LEDGER)).unwrap();
    let mut lines = ledger.lines();
    assert_eq!(lines.next(), Some("path,commit"));
    let rows: Vec<(&str, &str)> = lines.map(|line| line.split_once(',').unwrap()).collect();
    let read: BTreeSet<&str> = rows.iter().map(|(path, _)| *path).collect();
    assert_eq!(read.len(), rows.len(), "{LEDGER} names a file twice");
    for (path, commit) in &rows {
        assert!(commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{path}: `{commit}` is no commit");
    }
    let sources = sources_in(&LANGUAGES);
    let gone: Vec<_> = read.iter().filter(|path| !sources.contains_key(**path)).collect();
    assert!(gone.is_empty(), "{LEDGER} names files that are gone: {gone:?}");
    let missing: Vec<_> = sources.keys().filter(|path| !read.contains(path.as_str())).collect();
    assert!(missing.is_empty(), "nobody has read the prose of these files, or {LEDGER} lacks them: {missing:?}");
}
