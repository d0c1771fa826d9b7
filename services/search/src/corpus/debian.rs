//! Gets the long descriptions of all packages from Debian's package manager.
//!
//! `apt-get` runs with its own state in a temporary folder: it does not touch the system's state
//! and needs no rights. Does not contain the indexing.

use super::deb822::{self, Paragraphs, ParseError};
use crate::index::Document;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Decompresses a list in any of the package manager's compression formats.
const HELPER: &str = "/usr/lib/apt/apt-helper";
/// Folder with the system's lists.
const SYSTEM: &str = "/var/lib/apt/lists";
/// Limit of decompressed bytes per list: some twenty times today's size.
const LISTS_MAX: u64 = 1 << 30;
/// Limit of kept bytes of the package manager's error output.
const MESSAGE_MAX: u64 = 16 << 10;

/// Reason why no corpus was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The program is missing: the system is not Debian.
    #[error("`{program}` can't be run: {source}; the corpus is made of what Debian's package manager knows")]
    Program {
        /// The program.
        program: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The lists could not be downloaded.
    #[error("apt-get could not get the package descriptions: {0}")]
    Apt(String),
    /// The lists contain no descriptions.
    #[error("the package manager's sources have no English descriptions (Translation-en)")]
    NoDescriptions,
    /// A list has the wrong format.
    #[error("{}: {source}", path.display())]
    List {
        /// The list's file.
        path: PathBuf,
        /// Description of the problem.
        source: ParseError,
    },
    /// A file can't be written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step<'a> {
    /// A line of the package manager's progress.
    Getting(&'a str),
    /// Documents written so far.
    Writing(u64),
}

/// Writes the descriptions of all packages to `out`, once each, all or nothing; returns their
/// number.
///
/// Uses the system's lists if there are any. Otherwise the package manager downloads them, which
/// takes some seconds and 15 to 20 MB.
///
/// # Errors
/// See [`FetchError`].
pub fn fetch(out: &Path, report: &mut dyn FnMut(Step<'_>)) -> Result<u64, FetchError> {
    let beside = out.with_extension(format!("{}.part", std::process::id()));
    let state = out.with_extension(format!("{}.apt", std::process::id()));
    let written = fetch_beside(&beside, &state, report).and_then(|documents| {
        fs::rename(&beside, out).map_err(|source| FetchError::Io { path: out.into(), source })?;
        Ok(documents)
    });
    // Removes the temporary files in every case.
    let _ = fs::remove_dir_all(&state);
    let _ = fs::remove_file(&beside);
    written
}

fn fetch_beside(beside: &Path, state: &Path, report: &mut dyn FnMut(Step<'_>)) -> Result<u64, FetchError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| FetchError::Io { path, source }
    };
    if let Some(folder) = beside.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(io(folder))?;
    }
    let file = File::create(beside).map_err(io(beside))?;
    let mut lists = lists(Path::new(SYSTEM)).unwrap_or_default();
    if lists.is_empty() {
        get(state, report)?;
        lists = self::lists(&state.join("lists")).map_err(io(state))?;
    }
    let mut into = BufWriter::new(file);
    let mut titles = BTreeSet::new();
    for list in &lists {
        let mut source = open(list)?;
        for document in Paragraphs::new(BufReader::new((&mut source).take(LISTS_MAX))) {
            let document = document.map_err(|source| FetchError::List { path: list.clone(), source })?;
            write(&document, &mut titles, &mut into).map_err(io(beside))?;
            if titles.len().is_multiple_of(1_000) {
                report(Step::Writing(titles.len() as u64));
            }
        }
        source.end(list)?;
    }
    into.flush().map_err(io(beside))?;
    if titles.is_empty() { Err(FetchError::NoDescriptions) } else { Ok(titles.len() as u64) }
}

/// Writes a document unless an earlier list contained its package.
fn write(document: &Document, titles: &mut BTreeSet<String>, into: &mut impl Write) -> io::Result<()> {
    if titles.insert(document.title.clone()) { deb822::write(document, into) } else { Ok(()) }
}

/// Lists the files with English descriptions in a folder, by name.
fn lists(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut lists = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_list =
            name.to_str().is_some_and(|name| name.contains("_i18n_Translation-en") && !name.contains(".diff"));
        if is_list && entry.file_type()?.is_file() {
            lists.push(entry.path());
        }
    }
    lists.sort();
    Ok(lists)
}

/// Runs `apt-get` to download the lists into a separate state.
fn get(state: &Path, report: &mut dyn FnMut(Step<'_>)) -> Result<(), FetchError> {
    let io = |source| FetchError::Io { path: state.into(), source };
    fs::create_dir_all(state.join("lists/partial")).map_err(io)?;
    fs::create_dir_all(state.join("cache")).map_err(io)?;
    // Clears the system's hooks for updates.
    let config = state.join("apt.conf");
    let cleared =
        ["Post-Invoke", "Post-Invoke-Success", "Pre-Invoke"].map(|hook| format!("#clear APT::Update::{hook};\n"));
    fs::write(&config, cleared.concat()).map_err(io)?;
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut apt = Command::new("apt-get");
    apt.arg("-c").arg(&config);
    for option in [
        option("Dir::State", state),
        option("Dir::State::lists", &state.join("lists")),
        option("Dir::Cache", &state.join("cache")),
        "Acquire::Languages=en".into(),
        "Acquire::GzipIndexes=false".into(),
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
        "Acquire::IndexTargets::deb::CNF::DefaultEnabled=false".into(),
    ] {
        apt.arg("-o").arg(option);
    }
    apt.args(["-q", "update"]).env("LC_ALL", "C");
    apt.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = apt.spawn().map_err(|source| FetchError::Program { program: "apt-get", source })?;
    let complaints = child.stderr.take().map(|from| std::thread::spawn(move || error_message(from)));
    if let Some(from) = child.stdout.take() {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            report(Step::Getting(&line));
        }
    }
    let status = child.wait().map_err(|source| FetchError::Program { program: "apt-get", source })?;
    let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if status.success() { Ok(()) } else { Err(FetchError::Apt(format!("{status}; {complaints}"))) }
}

/// Reads a program's error output as one line of limited length.
fn error_message(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = (&mut from).take(MESSAGE_MAX).read_to_end(&mut bytes);
    // The rest must be read, or the program blocks for ever.
    let _ = io::copy(&mut from, &mut io::sink());
    let text = String::from_utf8_lossy(&bytes);
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    one_line.chars().take(400).collect()
}

/// A list's text.
enum List {
    Plain(File),
    /// Decompressed by the package manager's helper.
    Compressed(Child),
}

fn open(list: &Path) -> Result<List, FetchError> {
    if list.extension().is_none_or(|extension| extension.to_string_lossy().contains("Translation-en")) {
        return File::open(list).map(List::Plain).map_err(|source| FetchError::Io { path: list.into(), source });
    }
    let mut helper = Command::new(HELPER);
    helper.arg("cat-file").arg(list).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    helper.spawn().map(List::Compressed).map_err(|source| FetchError::Program { program: HELPER, source })
}

impl Read for List {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            List::Plain(file) => file.read(into),
            List::Compressed(child) => child.stdout.as_mut().map_or(Ok(0), |from| from.read(into)),
        }
    }
}

impl List {
    /// Checks that the whole list was readable.
    fn end(mut self, path: &Path) -> Result<(), FetchError> {
        let List::Compressed(child) = &mut self else { return Ok(()) };
        // Closes the pipe: beyond the limit the helper might block on more output.
        drop(child.stdout.take());
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(FetchError::Apt(format!("{HELPER} cat-file {}: {status}", path.display()))),
            Err(source) => Err(FetchError::Program { program: HELPER, source }),
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let List::Compressed(child) = self {
            // The helper has ended already, unless reading was abandoned.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_descriptions_are_selected() {
        let folder = std::env::temp_dir().join(format!("leeward-lists-{}", std::process::id()));
        fs::create_dir_all(folder.join("x_i18n_Translation-en")).unwrap();
        let wanted = ["a_main_i18n_Translation-en", "b_main_i18n_Translation-en.lz4"];
        for name in [wanted[1], wanted[0], "a_main_binary-amd64_Packages", "a_main_i18n_Translation-de", "lock"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let found = lists(&folder).unwrap();
        assert_eq!(found, wanted.map(|name| folder.join(name)));
        assert!(matches!(open(&found[0]), Ok(List::Plain(_))));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn error_messages_are_one_line_of_bounded_length() {
        assert_eq!(error_message(&b"E: one\n  two\n"[..]), "E: one two");
        assert_eq!(error_message(&vec![b'x'; 1 << 20][..]).len(), 400);
    }

    #[test]
    fn a_package_of_several_lists_is_one_document() {
        let document = |text: &str| Document { title: "a".into(), text: text.into() };
        let (mut titles, mut bytes) = (BTreeSet::new(), Vec::new());
        write(&document("first"), &mut titles, &mut bytes).unwrap();
        write(&document("second"), &mut titles, &mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "Package: a\nDescription-en: first\n\n");
    }
}
