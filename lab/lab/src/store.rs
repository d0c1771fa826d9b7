//! Results in a folder: `result.json` holds all results, `results.jsonl` one record per line.
//!
//! A file is written under another name and then renamed, so that a reader never sees an incomplete
//! file.

use leeward_outcome::results::{Claim, KindRow, LockRow, Machine, PointRow, Results, ShiftRow, WindowRow};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// File of all results.
pub const RESULT_FILE: &str = "result.json";
/// File of the records.
pub const RECORDS_FILE: &str = "results.jsonl";

/// Schema version written here, and the newest that can be read.
pub const SCHEMA: u32 = 1;

/// An error of writing or reading a results folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There are no results.
    #[error("{0}: no results there (expected a folder with `result.json`, as `leeward run --out` writes it)")]
    Missing(PathBuf),
    /// The file or folder can't be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a results file.
    #[error("{path}: not a results file: {problem}")]
    Corrupt {
        /// Path.
        path: PathBuf,
        /// Position and kind of the error.
        problem: String,
    },
    /// The file comes from a newer version.
    #[error("{path}: schema {found} is newer than this version reads (up to {known}): use a newer version")]
    NewerSchema {
        /// Path.
        path: PathBuf,
        /// Schema of the file.
        found: u64,
        /// Newest known schema.
        known: u32,
    },
}

/// A line of `results.jsonl`.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record<'a> {
    Experiment {
        schema: u32,
        scenario: &'a str,
        title: &'a str,
        source: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        description: &'a str,
        plant: &'a str,
        seed: u64,
        quick: bool,
        overrides: &'a [String],
    },
    Machine(&'a Machine),
    Point(&'a PointRow),
    Window(&'a WindowRow),
    Shift(&'a ShiftRow),
    Lock(&'a LockRow),
    Kind(&'a KindRow),
    Claim(&'a Claim),
}

/// Writes `results` into `folder`, which is created if missing; earlier results are replaced.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write(folder: &Path, results: &Results) -> Result<(), StoreError> {
    write_with(folder, results, &[])
}

/// As [`write()`], with further files of the same run: name and text. A full disk, or a folder in
/// the place of a file, leaves all of an earlier run's.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_with(folder: &Path, results: &Results, others: &[(&str, &str)]) -> Result<(), StoreError> {
    std::fs::create_dir_all(folder).map_err(|source| StoreError::Io { path: folder.into(), source })?;
    let mut files = vec![PartialFile::write(folder, RECORDS_FILE, |file| write_lines(file, results))?];
    for (name, text) in others {
        files.push(PartialFile::write(folder, name, |file| file.write_all(text.as_bytes()))?);
    }
    // Renamed last, because `read` reads this file.
    files.push(PartialFile::write(folder, RESULT_FILE, |file| {
        serde_json::to_writer_pretty(&mut *file, results)?;
        file.write_all(b"\n")
    })?);
    // The last cause for which a file can't be given its name.
    if let Some(file) = files.iter().find(|file| file.path.is_dir()) {
        return Err(StoreError::Io { path: file.path.clone(), source: ErrorKind::IsADirectory.into() });
    }
    files.into_iter().try_for_each(PartialFile::finish)
}

/// Writes the records of `results.jsonl`: the experiment, then all machines, points, windows,
/// shifts, locks, kinds and claims.
///
/// # Errors
/// Those of `out`.
pub fn write_lines(out: &mut dyn Write, results: &Results) -> std::io::Result<()> {
    let head = Record::Experiment {
        schema: results.schema,
        scenario: &results.scenario,
        title: &results.title,
        source: &results.source,
        description: &results.description,
        plant: &results.plant,
        seed: results.seed,
        quick: results.quick,
        overrides: &results.overrides,
    };
    let records = std::iter::once(head)
        .chain(results.machines.iter().map(Record::Machine))
        .chain(results.points.iter().map(Record::Point))
        .chain(results.windows.iter().map(Record::Window))
        .chain(results.shifts.iter().map(Record::Shift))
        .chain(results.locks.iter().map(Record::Lock))
        .chain(results.kinds.iter().map(Record::Kind))
        .chain(results.claims.iter().map(Record::Claim));
    for record in records {
        serde_json::to_writer(&mut *out, &record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A file under another name, until it is complete. Dropping it removes it.
struct PartialFile {
    partial: PathBuf,
    path: PathBuf,
}

impl PartialFile {
    fn write(
        folder: &Path,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<Self, StoreError> {
        let partial = folder.join(format!(".{name}.{}.partial", std::process::id()));
        let file = PartialFile { partial, path: folder.join(name) };
        let written = File::create(&file.partial).and_then(|file| {
            let mut file = BufWriter::new(file);
            content(&mut file)?;
            file.into_inner().map_err(|error| error.into_error())?.sync_all()
        });
        written.map_err(|source| StoreError::Io { path: file.path.clone(), source })?;
        Ok(file)
    }

    /// Gives the file its name.
    fn finish(self) -> Result<(), StoreError> {
        std::fs::rename(&self.partial, &self.path).map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.partial); // best effort: it has its name, or is of no use
    }
}

/// Reads the results in `folder` (or the `result.json` itself).
///
/// # Errors
/// [`StoreError`]: no results, a file that can't be read or is not a results file, or a newer
/// version.
pub fn read(folder: &Path) -> Result<Results, StoreError> {
    let path = if folder.is_dir() { folder.join(RESULT_FILE) } else { folder.to_path_buf() };
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => StoreError::Missing(folder.into()),
        ErrorKind::InvalidData => StoreError::Corrupt { path: path.clone(), problem: "not UTF-8 text".into() },
        _ => StoreError::Io { path: path.clone(), source },
    })?;
    let corrupt = |error: serde_json::Error| StoreError::Corrupt { path: path.clone(), problem: error.to_string() };
    // Checks the schema first: a newer file may lack fields of this version.
    let Schema { schema } = serde_json::from_str(&text).map_err(corrupt)?;
    if schema > SCHEMA.into() {
        return Err(StoreError::NewerSchema { path, found: schema, known: SCHEMA });
    }
    serde_json::from_str(&text).map_err(corrupt)
}

#[derive(Deserialize)]
struct Schema {
    schema: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("leeward-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_file_that_can_not_be_written_leaves_all_of_the_earlier_run() {
        let folder = folder("partial");
        write_with(&folder, &sample(), &[("report.html", "first")]).unwrap();
        let second = Results { scenario: "second".into(), ..sample() };
        assert!(write_with(&folder, &second, &[("report.html", "second"), ("no/folder", "")]).is_err());
        assert_eq!(read(&folder).unwrap(), sample());
        assert_eq!(std::fs::read_to_string(folder.join("report.html")).unwrap(), "first");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "nothing half-written stays");
        std::fs::remove_file(folder.join(RESULT_FILE)).unwrap();
        std::fs::create_dir(folder.join(RESULT_FILE)).unwrap();
        assert!(write_with(&folder, &second, &[("report.html", "second")]).is_err());
        assert_eq!(std::fs::read_to_string(folder.join("report.html")).unwrap(), "first");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    }

    fn sample() -> Results {
        Results {
            schema: SCHEMA,
            scenario: "sample".into(),
            points: vec![PointRow { goodput_rps: 0.1, ..PointRow::default() }],
            machines: vec![Machine { capacity_rps: 60e3, ..Machine::default() }],
            windows: vec![WindowRow { credit_pool: Some(3.0), ..WindowRow::default() }],
            shifts: vec![ShiftRow::default()],
            locks: vec![LockRow { kind: Some("mutex".into()), ..LockRow::default() }],
            ..Results::default()
        }
    }

    #[test]
    fn results_round_trip_through_files() {
        let folder = folder("round-trip");
        write(&folder, &sample()).unwrap();
        write(&folder, &sample()).unwrap();
        assert_eq!(read(&folder).unwrap(), sample());
        assert_eq!(read(&folder.join(RESULT_FILE)).unwrap(), sample());
        let lines = std::fs::read_to_string(folder.join(RECORDS_FILE)).unwrap();
        let records: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = records.iter().map(|record| record["record"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["experiment", "machine", "point", "window", "shift", "lock"]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "no partial file stays");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unreadable_results_are_reported() {
        let folder = folder("errors");
        let check = |part: &str| {
            let message = read(&folder).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        };
        check("no results there");
        std::fs::create_dir_all(&folder).unwrap();
        check("no results there");
        let fill = |bytes: &[u8]| std::fs::write(folder.join(RESULT_FILE), bytes).unwrap();
        fill(b"{\"schema\": 1, \"scen");
        check("not a results file: EOF");
        fill(b"\xff\xfe");
        check("not UTF-8");
        fill(b"{}");
        check("missing field `schema`");
        fill(b"{\"schema\": 99, \"unheard\": true}");
        check("schema 99 is newer");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
