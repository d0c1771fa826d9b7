//! Guides and decisions are short, and what they name exists: commands, flags, make targets,
//! scripts, files and keys. Does not contain links and paths alone in backticks (`prose.rs`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use super::architecture::root;
use super::prose::{files, folders};

/// Words of a decision, of a guide, and of all guides together, at most.
const DECISION_WORDS: usize = 250;
const GUIDE_WORDS: usize = 2_500;
const ALL_GUIDES_WORDS: usize = 40_000;

/// Files that programs make of results.
const GENERATED: [&str; 3] = ["verdicts.md", "league.md", "sensitivity.md"];

/// Decisions of the past, and the index.
const NO_DECISIONS: [&str; 2] = ["README.md", "superseded.md"];

/// Languages of code blocks without commands of a shell.
const NO_SHELL: [&str; 10] = ["rust", "toml", "python", "c", "cpp", "json", "yaml", "nginx", "ini", "dockerfile"];

/// Words before a command of ours on its line.
const WRAPPERS: [&str; 6] = ["sudo", "time", "nohup", "exec", "env", "nice"];

/// Flags of other programs that guides name in a sentence.
const FOREIGN_FLAGS: [&str; 5] = [
    "--enable-feature",      // Prometheus
    "--network",             // Docker
    "--smc-check",           // Valgrind
    "--limit-concurrency",   // uvicorn
    "--forwarded-allow-ips", // uvicorn
];

/// Commands that hand their arguments to another program.
const FORWARDING: [&str; 3] = ["cc", "c++", "cargo"];

/// Markdown files directly in `folder`, by name.
fn documents(folder: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    texts.map(|path| (path.file_name().unwrap().to_str().unwrap().into(), fs::read_to_string(&path).unwrap())).collect()
}

/// Guides: what people write in `docs/`.
fn guides() -> BTreeMap<String, String> {
    let mut guides = documents("docs");
    guides.retain(|name, _| !GENERATED.contains(&name.as_str()));
    guides
}

/// Bars of tables and marks of headings are no words.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Documents with more words than `most`.
fn too_long(documents: &BTreeMap<String, String>, most: usize) -> Vec<String> {
    let long = documents.iter().filter(|(_, text)| words(text) > most);
    long.map(|(name, text)| format!("{name}: {} words of {most}", words(text))).collect()
}

#[test]
fn decisions_are_short() {
    let mut decisions = documents("docs/decisions");
    decisions.retain(|name, _| !NO_DECISIONS.contains(&name.as_str()));
    assert!(decisions.len() > 90, "the search for decisions is broken: {}", decisions.len());
    let long = too_long(&decisions, DECISION_WORDS);
    assert!(long.is_empty(), "decisions have at most {DECISION_WORDS} words:\n{}", long.join("\n"));
}

#[test]
fn guides_are_short() {
    let guides = guides();
    assert!(guides.len() > 25, "the search for guides is broken: {}", guides.len());
    let mut long = too_long(&guides, GUIDE_WORDS);
    let all: usize = guides.values().map(|text| words(text)).sum();
    if all > ALL_GUIDES_WORDS {
        long.push(format!("all guides: {all} words of {ALL_GUIDES_WORDS}"));
    }
    assert!(long.is_empty(), "guides are too long:\n{}", long.join("\n"));
}

#[test]
fn long_documents_are_found() {
    let documents = BTreeMap::from([("a.md".into(), "one two three".to_string())]);
    assert!(too_long(&documents, 3).is_empty());
    assert_eq!(too_long(&documents, 2).len(), 1);
}

static KNOWN: LazyLock<Known> = LazyLock::new(Known::new);

/// Names that documents may use.
#[derive(Default)]
struct Known {
    /// Flags of each command of `leeward` by its path, such as `profile record`.
    commands: BTreeMap<String, BTreeSet<String>>,
    /// Flags that any program or script of the repository has.
    flags: HashSet<String>,
    targets: BTreeSet<String>,
    /// Words of all scenario and settings files, and of the sources that read them.
    keys: HashSet<String>,
    folders: Vec<String>,
}

/// Parts of a text that consist of `allowed` characters.
fn tokens(text: &str, allowed: fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |c: char| !allowed(c)).filter(|token| !token.is_empty())
}

/// Flags in a text: `--name`, at the start of a word.
fn flags(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.match_indices("--").filter_map(move |(at, _)| {
        let starts_word = !text[..at].ends_with(is_part);
        let name = text[at..].split(|c: char| !is_part(c)).next()?;
        (starts_word && name.len() > 3 && !name.starts_with("---")).then(|| name.to_string())
    })
}

/// Folders of programs without an extension.
const PROGRAMS: [&str; 3] = ["scripts", "profiler/experiments", "profiler/tests"];

/// Folders whose sources read scenario and settings files.
const READERS: [&str; 6] = ["cli/src", "controllers", "core", "guard/proxy", "lab/lab", "services"];

impl Known {
    fn new() -> Self {
        let completions = Command::new(env!("CARGO_BIN_EXE_leeward")).args(["completions", "bash"]).output().unwrap();
        let commands = commands(&String::from_utf8(completions.stdout).unwrap());
        let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
        let declared = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
        let targets = declared.split_whitespace().map(String::from).collect();
        let mut known = Known { commands, targets, folders: folders(), ..Known::default() };
        known.flags.extend(FOREIGN_FLAGS.map(String::from));
        known.flags.extend(known.commands.values().flatten().cloned());
        known.flags.extend(flags(&makefile));

        let mut paths = Vec::new();
        for folder in known.folders.iter().map(|folder| root().join(folder)) {
            for extension in ["rs", "py", "c", "cpp", "toml"] {
                files(&folder, extension, &mut paths);
            }
        }
        // The tests of the program plant mistakes.
        paths.retain(|path| !path.starts_with(root().join("cli/tests")));
        for folder in PROGRAMS {
            let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
            paths.extend(entries.filter(|path| path.is_file() && path.extension().is_none()));
        }
        paths.iter().for_each(|path| known.read(path, &fs::read_to_string(path).unwrap_or_default()));
        known
    }

    /// Adds the names in a source or a settings file.
    fn read(&mut self, path: &Path, source: &str) {
        self.flags.extend(flags(source));
        // Options of the compiler's plugin have no dashes in its source.
        let options = source.split("\"leeward-").skip(1).filter_map(|rest| rest.split('"').next());
        self.flags.extend(options.map(|name| format!("--leeward-{name}")));
        // Fields of clap's structures are flags.
        if source.contains("clap::") {
            let names = source.lines().filter_map(|line| line.trim().split_once(": "));
            let fields = names.map(|(name, _)| name.trim_start_matches("pub ").trim_start_matches("pub(crate) "));
            self.flags.extend(fields.map(|name| format!("--{}", name.replace('_', "-"))));
        }
        let has_keys = path.extension().is_some_and(|extension| extension == "toml")
            || READERS.iter().any(|folder| path.starts_with(root().join(folder)));
        if has_keys {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            self.keys.extend(tokens(source, is_part).map(String::from));
        }
    }
}

/// Flags of each command, from the completion script for bash.
fn commands(script: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut commands = BTreeMap::new();
    let mut lines = script.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(options) = lines.peek().and_then(|next| next.strip_prefix("opts=\"")) else { continue };
        let Some(name) = line.strip_suffix(')').and_then(|name| name.strip_prefix("leeward")) else { continue };
        let path: Vec<&str> = name.split("__subcmd__").filter(|part| !part.is_empty()).collect();
        commands.insert(path.join(" "), flags(options).collect());
    }
    commands
}

/// Words of a command; a quoted text is a part of its word.
fn shell_words(command: &str) -> Vec<&str> {
    let mut quote = None;
    let ends_word = |c: char| {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        quote.is_none() && c.is_whitespace()
    };
    command.split(ends_word).filter(|word| !word.is_empty()).collect()
}

/// Commands of ours in a line of a shell, each with its arguments, without variables, wrappers and
/// redirections.
fn commands_of(line: &str) -> Vec<Vec<&str>> {
    let line = line.split(" #").next().unwrap().trim().trim_start_matches("$ ");
    let parts = line.split([';', '|', '&', '\n', '`']).flat_map(|part| part.split("$("));
    let words = parts.map(shell_words);
    let ours = words.filter_map(|words| {
        let is_prefix = |word: &&str| WRAPPERS.contains(word) || word.contains('=') && !word.starts_with('-');
        let start = words.iter().position(|word| !is_prefix(word))?;
        let program = words[start].rsplit('/').next()?;
        let is_ours = program == "leeward" || words[start] == "make" || words[start].starts_with("scripts/");
        is_ours.then(|| words[start..].to_vec())
    });
    ours.collect()
}

/// Lines of a document that may hold commands: lines of code blocks, and code in sentences.
/// Also returns the blocks of TOML.
fn code(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut settings, mut prose) = (Vec::<String>::new(), Vec::new(), String::new());
    let mut language: Option<String> = None;
    for line in text.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            language =
                if language.is_some() { None } else { Some(fence.split([',', ' ']).next().unwrap().trim().into()) };
            continue;
        }
        match language.as_deref() {
            None => prose += &format!("{line}\n"),
            Some("toml") => settings.push(line.into()),
            Some(other) if NO_SHELL.contains(&other) => {}
            // A line that ends with a backslash goes on.
            Some(_) => match lines.last_mut() {
                Some(last) if last.ends_with(" \\") => {
                    last.truncate(last.len() - 1);
                    *last += line.trim();
                }
                _ => lines.push(line.to_string()),
            },
        }
    }
    for paragraph in prose.split("\n\n") {
        let spans = paragraph.split('`').skip(1).step_by(2);
        lines.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    (lines, settings)
}

/// A word without the marks of optional parts and of the end of a sentence.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, '[' | ']' | '(' | ')' | ',' | '.' | '\'' | '"' | '…' | ':'))
}

/// Flag at the start of a word, without its value.
fn flag(word: &str) -> Option<&str> {
    let name = bare(word).split(['=', '…', '<']).next()?;
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (name.len() > 2 && name.starts_with("--") && name.chars().all(is_part)).then_some(name)
}

/// Names in a command that do not exist.
fn unknown_in_command(command: &[&str], known: &Known) -> Vec<String> {
    let mut unknown = Vec::new();
    let (program, arguments) = command.split_first().unwrap();
    match program.rsplit('/').next().unwrap() {
        "leeward" => {
            let mut path = String::new();
            for word in arguments {
                let deeper = format!("{path} {word}").trim().to_string();
                if known.commands.contains_key(&deeper) {
                    path = deeper;
                } else if path.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()) {
                    unknown.push(format!("leeward {word}"));
                    break;
                } else if *word == "--" || FORWARDING.contains(&path.as_str()) {
                    break;
                } else if let Some(flag) = flag(word)
                    && !["--help", "--version"].contains(&flag)
                    && !known.commands[&path].contains(flag)
                {
                    unknown.push(format!("leeward {path} {flag}"));
                }
            }
        }
        "make" => {
            let targets = arguments.iter().take_while(|word| **word != "-C").map(|word| bare(word));
            let names =
                targets.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.contains('='));
            let names = names.filter(|word| !word.contains(|c: char| !c.is_ascii_lowercase() && c != '-'));
            unknown.extend(names.filter(|name| !known.targets.contains(*name)).map(|name| format!("make {name}")));
        }
        _ => {
            if !program.contains(['<', '*', '…']) && !root().join(bare(program)).exists() {
                unknown.push((*program).into());
            }
            let named = arguments.iter().filter_map(|word| flag(word));
            let gone = named.filter(|flag| *flag != "--help" && !known.flags.contains(*flag));
            unknown.extend(gone.map(|flag| format!("{program} {flag}")));
        }
    }
    let is_ours = |word: &&str| {
        known.folders.iter().any(|folder| word.strip_prefix(&**folder).is_some_and(|rest| rest.starts_with('/')))
    };
    let paths = arguments.iter().map(|word| bare(word)).filter(is_ours);
    let named = paths.filter(|path| !path.contains(['*', '<', '{', '$', '…', '=']));
    unknown.extend(named.filter(|path| !root().join(path).exists()).map(String::from));
    unknown
}

/// Parts of the name in brackets at the start of a text, such as `[server.threads]` or `[[kind]]`.
fn section(text: &str) -> Option<Vec<&str>> {
    let name = text.trim().trim_start_matches('[');
    let (name, _) = name.split_once(']').filter(|_| text.trim().starts_with('['))?;
    let parts: Vec<&str> = name.split('.').map(|part| part.trim_matches('"')).collect();
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let is_name =
        |part: &&str| part.len() > 2 && part.chars().all(is_part) && !part.starts_with(|c: char| c.is_ascii_digit());
    parts.iter().all(is_name).then_some(parts)
}

/// Names in a document that do not exist.
fn unknown(text: &str, known: &Known) -> Vec<String> {
    let (lines, settings) = code(text);
    let mut unknown = Vec::new();
    for line in &lines {
        let commands = commands_of(line);
        unknown.extend(commands.iter().flat_map(|command| unknown_in_command(command, known)));
        if let Some(flag) = flag(line.split(' ').next().unwrap())
            && !known.flags.contains(flag)
        {
            unknown.push(flag.to_string());
        }
        if commands.is_empty() && line.starts_with('[') && !line.contains("](") {
            let parts = section(line).unwrap_or_default();
            unknown.extend(parts.iter().filter(|part| !known.keys.contains(**part)).map(|part| format!("[{part}]")));
        }
    }
    for line in settings.iter().map(|line| line.trim()) {
        let key =
            line.split_once('=').map(|(key, _)| key.trim()).filter(|key| !key.contains(['#', '[', '{', '"', ' ']));
        let parts = section(line).unwrap_or_else(|| key.map_or(Vec::new(), |key| key.split('.').collect()));
        unknown.extend(parts.iter().filter(|part| !known.keys.contains(**part)).map(|part| format!("key {part}")));
    }
    unknown
}

#[test]
fn guides_name_what_exists() {
    let known = &*KNOWN;
    assert!(known.commands.len() > 40 && known.commands["run"].contains("--plant"), "{:?}", known.commands.keys());
    let named = |folder: &'static str, texts: BTreeMap<String, String>| {
        texts.into_iter().map(move |(name, text)| (format!("{folder}/{name}"), text))
    };
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let top = top.map(|name| (name.to_string(), fs::read_to_string(root().join(name)).unwrap()));
    let documents: Vec<(String, String)> =
        named("docs", guides()).chain(named("docs/decisions", documents("docs/decisions"))).chain(top).collect();
    let lines = documents.iter().flat_map(|(_, text)| code(text).0);
    let commands: usize = lines.map(|line| commands_of(&line).len()).sum();
    assert!(commands > 100, "the search for commands is broken: {commands}");
    let found = documents
        .iter()
        .flat_map(|(name, text)| unknown(text, known).into_iter().map(move |what| format!("{name}: {what}")));
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "documents name what does not exist:\n{}", found.join("\n"));
}

#[test]
fn planted_mistakes_are_found() {
    let known = &*KNOWN;
    let check = |text: &str, expected: &[&str]| assert_eq!(unknown(text, known), expected, "{text}");
    check("```sh\n$ leeward run bw-overall --quick && make check # --nonsense\ncurl --nonsense x\n```", &[]);
    check("```sh\nleeward run bw-overall --plant real \\\n  --unheard-of\n```", &["leeward run --unheard-of"]);
    check("```\nLEEWARD=x target/release/leeward serve --cores 2 --udp=1 --slow\n```", &["leeward serve --slow"]);
    check("Use `leeward profile\nrecord --unheard 1`.", &["leeward profile record --unheard"]);
    check("Use `leeward profile record --pid 7 -- ./program --its-own`.", &[]);
    check("Use `--unheard-of` or `--plant`.", &["--unheard-of"]);
    check(
        "Use `leeward nonsense`, `make nonsense` and `make ecosystem ARGS=\"--only x\"`.",
        &["leeward nonsense", "make nonsense"],
    );
    check("Use `scripts/nonsense` and `scripts/setup --nonsense`.", &["scripts/nonsense", "scripts/setup --nonsense"]);
    check(
        "Use `leeward run experiments/none.toml` and `leeward run experiments/demo.toml`.",
        &["experiments/none.toml"],
    );
    check("See `[run]`, `[server.threads]`, `[[kind]]` and `[nonsuchkey]`.", &["[nonsuchkey]"]);
    check("```toml\n[run]\nseeds = 5\nnonsuchkey = 1 # why\n```", &["key nonsuchkey"]);
}
