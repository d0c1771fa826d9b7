//! Documents to search: a few hundred that are built in, and some 64,000 from the machine's package
//! manager.
//!
//! - [`deb822`]: the format of both. [`debian`]: the download from the package manager.
//! - This module: the path of the large corpus, and reading either.

pub mod deb822;
pub mod debian;

use crate::index::{DOCUMENTS_MAX, Document};
use deb822::{Paragraphs, ParseError};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// The built-in documents: paragraphs of this project's guides.
const SMALL: &str = include_str!("small.deb822");

/// A file that can't be used as a corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The file can't be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file can't be read, or has another format.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        source: ParseError,
    },
    /// The file contains no document.
    #[error("{}: no paragraph with `Package:` and `Description-en:` in it", .0.display())]
    Empty(PathBuf),
    /// The file has more documents than an index accepts.
    #[error("{}: more than {DOCUMENTS_MAX} documents", .0.display())]
    TooMany(PathBuf),
}

/// Returns the built-in documents.
pub fn small() -> Vec<Document> {
    // Our own text, which a test reads completely: no paragraph fails.
    Paragraphs::new(SMALL.as_bytes()).filter_map(Result::ok).collect()
}

/// Reads the documents of a file from `leeward corpus`, or of any file of Debian's paragraphs with
/// descriptions.
///
/// # Errors
/// See [`CorpusError`].
pub fn read(path: &Path) -> Result<Vec<Document>, CorpusError> {
    let file = File::open(path).map_err(|source| CorpusError::Open { path: path.into(), source })?;
    let mut documents = Vec::new();
    for document in Paragraphs::new(BufReader::new(file)) {
        if documents.len() >= DOCUMENTS_MAX {
            return Err(CorpusError::TooMany(path.into()));
        }
        documents.push(document.map_err(|source| CorpusError::Parse { path: path.into(), source })?);
    }
    if documents.is_empty() { Err(CorpusError::Empty(path.into())) } else { Ok(documents) }
}

/// Returns the path of the large corpus in the user's cache folder; `None` without such a folder.
pub fn default_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("leeward").join("corpus.deb822"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_corpus_is_complete() {
        let documents = Paragraphs::new(SMALL.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(documents, small());
        assert!((300..1_000).contains(&documents.len()), "{}", documents.len());
        let titles: std::collections::BTreeSet<_> = documents.iter().map(|document| &document.title).collect();
        assert_eq!(titles.len(), documents.len());
    }

    #[test]
    fn unusable_corpus_files_are_named() {
        let folder = std::env::temp_dir().join(format!("leeward-corpus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let check = |name: &str, text: &str, expected: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(expected), "{error}");
        };
        check("empty", "", "no paragraph");
        check("binary", "\0\u{1}\n", "line 1");
        assert!(matches!(read(&folder.join("none")), Err(CorpusError::Open { .. })));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
