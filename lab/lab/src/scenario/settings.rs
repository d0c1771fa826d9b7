//! Flat configuration files of programs: TOML with a fixed set of keys, read as strictly as
//! scenarios, with the line of every mistake.
//!
//! Does not contain the meaning of the keys.

use super::ScenarioError;
use super::document::{Origin, Source, Table, parse, read_text};
use super::reader::{Item, Reader};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use std::ops::RangeInclusive;
use std::path::Path;

/// Maximum file size; a configuration file has a dozen lines.
const MAX_BYTES: u64 = 100_000;

/// The keys and values of a configuration file.
#[derive(Clone, Debug)]
pub struct Settings {
    file: String,
    table: Table,
}

/// A key and value of a table. [`Settings::error_in`] finds its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Name of the key.
    pub name: String,
    /// Value of any kind.
    pub value: RawParam,
}

impl Settings {
    /// Reads a file that may have only `keys`.
    ///
    /// # Errors
    /// The file can't be read, is not TOML, or has another key.
    pub fn load(path: &Path, keys: &[&str]) -> Result<Settings, ScenarioError> {
        let file = path.display().to_string();
        match read_text(path, MAX_BYTES, "longer than 100 kB; a configuration has a dozen lines") {
            Ok(text) => Settings::parse(&file, &text, keys),
            // The message of `ScenarioError::Read` is about scenarios.
            Err(error) => Err(ScenarioError::Invalid { place: file, key: "file".into(), problem: error.to_string() }),
        }
    }

    /// Parses the text of the file `file`, which may have only `keys`.
    ///
    /// # Errors
    /// The text is not TOML, or has another key.
    pub fn parse(file: &str, text: &str, keys: &[&str]) -> Result<Settings, ScenarioError> {
        let source = Source { file, overrides: &[] };
        let table = parse(&source, text)?;
        Reader::new(&source, &table, "", Origin::Line(1), keys)?;
        Ok(Settings { file: file.into(), table })
    }

    /// Whether `key` is set.
    pub fn has(&self, key: &str) -> bool {
        self.table.find(key).is_some()
    }

    /// The text of `key`, one line, if it is set.
    ///
    /// # Errors
    /// The value is not one line of text.
    pub fn line(&self, key: &str) -> Result<Option<String>, ScenarioError> {
        self.read_key(key, |item| item.line().map(Into::into))
    }

    /// The duration of `key`, as it was written.
    ///
    /// # Errors
    /// The value is not a duration, or out of range.
    pub fn duration(&self, key: &str, range: RangeInclusive<Nanos>) -> Result<Option<String>, ScenarioError> {
        self.read_key(key, |item| item.duration(range).and_then(|_| item.text().map(Into::into)))
    }

    /// The integer of `key`.
    ///
    /// # Errors
    /// The value is not an integer, or out of range.
    pub fn count(&self, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, ScenarioError> {
        self.read_key(key, |item| item.count(range))
    }

    /// The integers of `key`, from a list of up to `most` entries or a single number.
    ///
    /// # Errors
    /// The value is something else, or out of range.
    pub fn counts(
        &self,
        key: &str,
        max_entries: usize,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Vec<u32>>, ScenarioError> {
        self.read_key(key, |item| item.list(max_entries)?.iter().map(|item| item.count(range.clone())).collect())
    }

    /// The index in `words` of the value of `key`.
    ///
    /// # Errors
    /// The value is not one of `words`.
    pub fn choice(&self, key: &str, choices: &[&str]) -> Result<Option<usize>, ScenarioError> {
        self.read_key(key, |item| item.choice(choices))
    }

    /// The pairs of the table `key`, in order; empty if it is not set.
    ///
    /// # Errors
    /// The value is not a table, or contains a list or table.
    pub fn pairs(&self, key: &str) -> Result<Vec<Pair>, ScenarioError> {
        let pairs = self.read_key(key, |item| {
            let table = item.open_table()?;
            table.all().map(|(name, item)| Ok(Pair { name: name.into(), value: item.raw()? })).collect()
        });
        Ok(pairs?.unwrap_or_default())
    }

    /// An error about the value of `key`, for checks outside of this reader.
    pub fn error(&self, key: &str, problem: &str) -> ScenarioError {
        let origin = self.table.find(key).map_or(Origin::Line(1), |entry| entry.origin);
        self.source().error(origin, key, problem)
    }

    /// An error about `name` in the table `key`.
    pub fn error_in(&self, key: &str, name: &str, problem: &str) -> ScenarioError {
        let wrong = self.read_key(key, |item| {
            let table = item.open_table()?;
            let wrong = table.all().find(|(known, _)| *known == name).map(|(_, item)| item.error(problem));
            Err::<(), _>(wrong.unwrap_or_else(|| item.error(problem)))
        });
        wrong.err().unwrap_or_else(|| self.error(key, problem))
    }

    fn source(&self) -> Source<'_> {
        Source { file: &self.file, overrides: &[] }
    }

    fn read_key<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Item<'_>) -> Result<T, ScenarioError>,
    ) -> Result<Option<T>, ScenarioError> {
        let source = self.source();
        let reader = Reader::new(&source, &self.table, "", Origin::Line(1), &self.keys())?;
        reader.find(key).map(|item| read(&item)).transpose()
    }

    /// All keys of the file; they were checked when it was read.
    fn keys(&self) -> Vec<&str> {
        self.table.entries.iter().map(|entry| entry.key.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["cores", "cpus", "slo", "name", "set"];

    fn settings(text: &str) -> Settings {
        Settings::parse("my.toml", text, KEYS).unwrap()
    }

    #[test]
    fn values_are_read_and_wrong_ones_have_a_line() {
        let good = settings("cores = 2\ncpus = [0, 3]\nslo = \"1ms\"\n[set]\ntarget = \"80us\"\nwindow = 3\n");
        assert_eq!(good.count("cores", 1..=4).unwrap(), Some(2));
        assert_eq!(good.counts("cpus", 9, 0..=9).unwrap(), Some(vec![0, 3]));
        assert_eq!(good.duration("slo", Nanos(1)..=Nanos::MAX).unwrap().as_deref(), Some("1ms"));
        assert_eq!(good.line("name").unwrap(), None);
        let names: Vec<String> = good.pairs("set").unwrap().into_iter().map(|pair| pair.name).collect();
        assert_eq!(names, ["target", "window"]);
        let check = |error: ScenarioError, expected: &str| assert_eq!(error.to_string(), expected);
        check(good.count("cores", 3..=4).unwrap_err(), "my.toml:1: cores: `2` is not a whole number from 3 to 4");
        check(good.line("cpus").unwrap_err(), "my.toml:2: cpus: a list is not a text in quotes");
        check(good.pairs("slo").unwrap_err(), "my.toml:3: slo: `1ms` is not a table");
        check(good.error("slo", "too short"), "my.toml:3: slo: too short");
        check(good.error_in("set", "window", "no such"), "my.toml:6: set.window: no such");
        check(good.error_in("set", "gone", "no such"), "my.toml:4: set: no such");
    }

    #[test]
    fn unknown_keys_and_broken_files_are_refused() {
        let refused = |text: &str| Settings::parse("my.toml", text, KEYS).unwrap_err().to_string();
        assert_eq!(
            refused("cores = 1\ncorse = 2"),
            "my.toml:2: corse: unknown key; accepted: cores, cpus, slo, name, set"
        );
        assert!(refused("cores = 1\ncores = 2").starts_with("my.toml:2: syntax: not TOML"));
        assert!(refused("\n\ncores").starts_with("my.toml:3: syntax"));
        let missing = Settings::load(Path::new("no/such.toml"), KEYS).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.toml: file: "), "{missing}");
    }
}
