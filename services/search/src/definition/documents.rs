//! Loads the documents to search, and remembers their file.

use crate::Document;
use crate::corpus::{self, CorpusError};
use std::path::{Path, PathBuf};

/// Documents and their file.
pub(super) struct Documents {
    pub(super) documents: Vec<Document>,
    /// The file; `None` for the built-in corpus.
    pub(super) file: Option<PathBuf>,
}

impl Documents {
    /// Loads the documents of `file`.
    ///
    /// Without `file` it loads the corpus of `leeward corpus`, or else the built-in one.
    ///
    /// # Errors
    /// The file was named or exists, but is not a corpus.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, CorpusError> {
        let made = corpus::default_path().filter(|path| path.exists());
        match file.map(Path::to_path_buf).or(made) {
            Some(path) => Ok(Documents { documents: corpus::read(&path)?, file: Some(path) }),
            None => Ok(Documents { documents: corpus::small(), file: None }),
        }
    }
}
