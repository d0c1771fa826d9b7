//! The documents that are searched, and the file that they are from.

use crate::Document;
use crate::corpus::{self, CorpusError};
use std::path::{Path, PathBuf};

/// Documents, and where they are from.
pub(super) struct Documents {
    pub(super) documents: Vec<Document>,
    /// The file; `None` for the small corpus that comes along.
    pub(super) file: Option<PathBuf>,
}

impl Documents {
    /// The documents of `file`; if none is named, those that `leeward corpus` has made, and if it has not, the small corpus.
    ///
    /// # Errors
    /// A file that is there, or was named, and is no corpus.
    pub(super) fn load(file: Option<&Path>) -> Result<Self, CorpusError> {
        let made = corpus::default_path().filter(|path| path.exists());
        match file.map(Path::to_path_buf).or(made) {
            Some(path) => Ok(Documents { documents: corpus::read(&path)?, file: Some(path) }),
            None => Ok(Documents { documents: corpus::small(), file: None }),
        }
    }
}
