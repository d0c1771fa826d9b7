//! Certificates, keys and authorities in PEM files, and the detection of changed files.

use crate::expiry::Validity;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Longest file that is read, in bytes; more than any real chain or list of authorities.
const LONGEST: u64 = 4 << 20;

/// Error of files that are unusable for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file lacks the expected content.
    #[error("{path} contains no {wanted} in PEM, a block that begins with -----BEGIN")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The missing content.
        wanted: &'static str,
    },
    /// A certificate or a key is unusable.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {key} is not that of the certificate in {cert}")]
    OtherKey {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
    },
    /// The name is impossible in a certificate.
    #[error("`{name}` is no server name; accepted: a host name or an address")]
    Name {
        /// The name.
        name: String,
    },
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    // A device has no length, and no end.
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(LoadError::Unusable { path: path.into(), reason: format!("is longer than {LONGEST} bytes") });
    }
    Ok(bytes)
}

/// The certificates in a file; the first one is the owner's.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let bytes = read(path)?;
    let read = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = read.map_err(|error| LoadError::Unusable { path: path.into(), reason: error.to_string() })?;
    if found.is_empty() {
        return Err(LoadError::Missing { path: path.into(), wanted: "certificate" });
    }
    Ok(found)
}

/// The certificate chain in a file, and when all of it is valid. Given a time, refuses a chain that
/// is not valid then.
pub(crate) fn chain(
    path: &Path,
    now: Option<SystemTime>,
) -> Result<(Vec<CertificateDer<'static>>, Option<Validity>), LoadError> {
    let chain = certificates(path)?;
    let validity = Validity::of_chain(&chain);
    match now.zip(validity).and_then(|(now, validity)| validity.problem(now)) {
        Some(problem) => Err(LoadError::Unusable { path: path.into(), reason: format!("the certificate {problem}") }),
        None => Ok((chain, validity)),
    }
}

/// The private key in a file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, LoadError> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| LoadError::Missing { path: path.into(), wanted: "private key" })
}

/// The authorities in a file, which must all be usable.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, LoadError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = store.add(certificate);
        added.map_err(|error| LoadError::Unusable { path: path.into(), reason: error.to_string() })?;
    }
    Ok(store)
}

/// Converts an error of rustls about a certificate and its key.
pub(crate) fn unusable(cert: &Path, key: &Path, error: &rustls::Error) -> LoadError {
    match error {
        rustls::Error::InconsistentKeys(_) => LoadError::OtherKey { key: key.into(), cert: cert.into() },
        _ => LoadError::Unusable { path: cert.into(), reason: error.to_string() },
    }
}

/// State of a file from its metadata: modification time, length, inode.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Files that are checked at intervals.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    files: Vec<PathBuf>,
    /// State that was loaded, or tried.
    loaded: Vec<Stamp>,
    /// State at the last check.
    last_checked: Vec<Stamp>,
}

impl WatchedFiles {
    /// Records the state of files that are about to be loaded.
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        let stamps = stamps(&files);
        WatchedFiles { files, loaded: stamps.clone(), last_checked: stamps }
    }

    /// Whether the files differ from the loaded ones and have not changed since the last check. A
    /// certificate and its key are seldom replaced at the same moment.
    pub(crate) fn have_changed(&mut self) -> bool {
        let now = stamps(&self.files);
        let is_settled = now == self.last_checked;
        self.last_checked = now;
        if !is_settled || self.last_checked == self.loaded {
            return false;
        }
        self.loaded.clone_from(&self.last_checked);
        true
    }
}

impl WatchedFiles {
    /// Records that the files are loaded as they are now.
    pub(crate) fn mark_loaded(&mut self) {
        self.last_checked = stamps(&self.files);
        self.loaded.clone_from(&self.last_checked);
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let data = fs::metadata(path).ok()?;
        Some((data.modified().ok()?, data.len(), data.ino()))
    };
    files.iter().map(stamp).collect()
}
