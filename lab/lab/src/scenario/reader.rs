//! Takes keys out of a table, one by one, each with its check.
//!
//! A table names its accepted keys first, so that a misspelt key is reported as unknown, not as
//! missing.

use super::ScenarioError;
use super::document::{Node, Origin, Source, Table, Value};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, parse_duration, parse_scaled};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Maximum number of entries of a list.
pub(super) const MAX_ENTRIES: usize = 1_000;

/// A table being read.
pub(super) struct Reader<'a> {
    source: &'a Source<'a>,
    table: &'a Table,
    path: String,
    origin: Origin,
}

/// A value being read.
pub(super) struct Item<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
    source: &'a Source<'a>,
}

impl<'a> Reader<'a> {
    /// Begins to read `table`, which may have only `keys`.
    pub(super) fn new(
        source: &'a Source<'a>,
        table: &'a Table,
        path: &str,
        origin: Origin,
        keys: &[&str],
    ) -> Result<Self, ScenarioError> {
        let reader = Reader { source, table, path: path.into(), origin };
        match table.entries.iter().find(|entry| !keys.contains(&entry.key.as_str())) {
            None => Ok(reader),
            Some(entry) => {
                let problem = format!("unknown key; accepted: {}", keys.join(", "));
                Err(source.error(entry.origin, &reader.path_of(&entry.key), problem))
            }
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`, if it is set.
    pub(super) fn find(&self, key: &str) -> Option<Item<'a>> {
        let entry = self.table.find(key)?;
        Some(Item { node: &entry.node, path: self.path_of(key), source: self.source })
    }

    /// The value of `key`; if it is missing, the error message names `expected`.
    pub(super) fn require(&self, key: &str, expected: &str) -> Result<Item<'a>, ScenarioError> {
        self.find(key)
            .ok_or_else(|| self.source.error(self.origin, &self.path_of(key), format!("missing; expected {expected}")))
    }

    /// The text of `key` for people; empty if it is not set.
    pub(super) fn prose_or_empty(&self, key: &str) -> Result<String, ScenarioError> {
        self.find(key).map_or(Ok(String::new()), |item| item.prose().map(Into::into))
    }

    /// The duration of `key`, or `default`.
    pub(super) fn duration_or(
        &self,
        key: &str,
        range: RangeInclusive<Nanos>,
        default: Nanos,
    ) -> Result<Nanos, ScenarioError> {
        self.find(key).map_or(Ok(default), |item| item.duration(range))
    }

    /// The integer of `key`, or `default`.
    pub(super) fn count_or(&self, key: &str, range: RangeInclusive<u32>, default: u32) -> Result<u32, ScenarioError> {
        self.find(key).map_or(Ok(default), |item| item.count(range))
    }

    /// All pairs, for tables with arbitrary keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a str, Item<'a>)> + '_ {
        self.table.entries.iter().map(|entry| {
            let item = Item { node: &entry.node, path: self.path_of(&entry.key), source: self.source };
            (entry.key.as_str(), item)
        })
    }

    /// An error about `key` of this table.
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> ScenarioError {
        self.source.error(self.origin, &self.path_of(key), problem)
    }
}

impl<'a> Item<'a> {
    /// An error about this value.
    pub(super) fn error(&self, problem: impl Into<String>) -> ScenarioError {
        self.source.error(self.node.origin, &self.path, problem)
    }

    /// An error about an entry that means the same as `earlier` of its list.
    pub(super) fn repeated(&self, earlier: &Item<'_>) -> ScenarioError {
        let [value, earlier] = [self, earlier].map(|item| item.node.value.describe());
        if value == earlier {
            return self.error(format!("{value} is in the list twice; accepted: once"));
        }
        self.error(format!("{value} is the same as {earlier} of the list; accepted: one of them"))
    }

    /// The error that the value is not `expected`.
    pub(super) fn unexpected(&self, expected: impl Display) -> ScenarioError {
        self.error(format!("{} is not {expected}", self.node.value.describe()))
    }

    /// Whether the value comes from an override.
    pub(super) fn is_override(&self) -> bool {
        matches!(self.node.origin, Origin::Override(_))
    }

    pub(super) fn text(&self) -> Result<&'a str, ScenarioError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.unexpected("a text in quotes")),
        }
    }

    /// Reads a text for people: of any length, but without control characters, which could steer a
    /// terminal.
    pub(super) fn prose(&self) -> Result<&'a str, ScenarioError> {
        let text = self.text()?;
        if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
            return Err(self.unexpected("a text without control characters"));
        }
        Ok(text)
    }

    /// Reads a line of text for people.
    pub(super) fn line(&self) -> Result<&'a str, ScenarioError> {
        let text = self.text()?;
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err(self.unexpected("one line of text"));
        }
        Ok(text)
    }

    /// Reads one of `words`; returns its index.
    pub(super) fn choice(&self, choices: &[&str]) -> Result<usize, ScenarioError> {
        let index = match &self.node.value {
            Value::Text(text) => choices.iter().position(|word| word == text),
            _ => None,
        };
        let quoted: Vec<String> = choices.iter().map(|word| format!("\"{word}\"")).collect();
        index.ok_or_else(|| self.unexpected(format!("one of {}", quoted.join(", "))))
    }

    pub(super) fn duration(&self, range: RangeInclusive<Nanos>) -> Result<Nanos, ScenarioError> {
        let span = match &self.node.value {
            Value::Text(text) => parse_duration(text).ok(),
            _ => None,
        };
        span.filter(|span| range.contains(span)).ok_or_else(|| {
            self.unexpected(format!("a duration from {} to {}, such as \"80us\"", range.start(), range.end()))
        })
    }

    pub(super) fn count(&self, range: RangeInclusive<u32>) -> Result<u32, ScenarioError> {
        let quotes = if matches!(self.node.value, Value::Text(_)) { ", without quotes" } else { "" };
        let expected = || self.unexpected(format!("a whole number from {} to {}{quotes}", range.start(), range.end()));
        match &self.node.value {
            Value::Integer(number) => u32::try_from(*number).ok().filter(|number| range.contains(number)),
            _ => None,
        }
        .ok_or_else(expected)
    }

    /// Reads any finite number.
    pub(super) fn number(&self) -> Result<f64, ScenarioError> {
        match &self.node.value {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            Value::Text(text) => parse_scaled(text).ok(),
            _ => None,
        }
        .filter(|number| number.is_finite())
        .ok_or_else(|| self.unexpected("a number such as `1.05` or \"850k\""))
    }

    /// Reads a parameter's value of any kind.
    pub(super) fn raw(&self) -> Result<RawParam, ScenarioError> {
        match &self.node.value {
            Value::Text(text) => Ok(RawParam::Text(text.clone())),
            Value::Integer(number) => Ok(RawParam::Integer(*number)),
            Value::Number(number) => Ok(RawParam::Number(*number)),
            Value::Boolean(on) => Ok(RawParam::Switch(*on)),
            _ => Err(self.unexpected("a text, a number or true/false")),
        }
    }

    /// Reads the entries of a list; a single value counts as a list of one.
    pub(super) fn list(&self, max_entries: usize) -> Result<Vec<Item<'a>>, ScenarioError> {
        let Value::List(items) = &self.node.value else {
            return Ok(vec![Item { node: self.node, path: self.path.clone(), source: self.source }]);
        };
        if items.is_empty() || items.len() > max_entries {
            return Err(self.error(format!("a list of {}; accepted: 1 to {max_entries} entries", items.len())));
        }
        Ok(items.iter().map(|node| Item { node, path: self.path.clone(), source: self.source }).collect())
    }

    /// Reads a table that may have only `keys`.
    pub(super) fn table(&self, keys: &[&str]) -> Result<Reader<'a>, ScenarioError> {
        match &self.node.value {
            Value::Table(table) => Reader::new(self.source, table, &self.path, self.node.origin, keys),
            _ => Err(self.unexpected("a table")),
        }
    }

    /// Reads a table with any keys.
    pub(super) fn open_table(&self) -> Result<Reader<'a>, ScenarioError> {
        match &self.node.value {
            Value::Table(table) => {
                Ok(Reader { source: self.source, table, path: self.path.clone(), origin: self.node.origin })
            }
            _ => Err(self.unexpected("a table")),
        }
    }

    /// Reads a list of tables that each may have only `keys`.
    pub(super) fn tables(&self, max_entries: usize, keys: &[&str]) -> Result<Vec<Reader<'a>>, ScenarioError> {
        match &self.node.value {
            Value::List(_) => self.list(max_entries)?.iter().map(|item| item.table(keys)).collect(),
            _ => Err(self.unexpected("a list of tables, written as [[…]]")),
        }
    }
}

/// Reads a list of distinct entries: a repeated one would count twice in every mean.
pub(super) fn distinct<T: PartialEq>(
    list: &Item<'_>,
    read: impl Fn(&Item<'_>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    let mut values = Vec::new();
    let items = list.list(MAX_ENTRIES)?;
    for item in &items {
        let value = read(item)?;
        if let Some(earlier) = values.iter().position(|other| *other == value) {
            return Err(item.repeated(&items[earlier]));
        }
        values.push(value);
    }
    Ok(values)
}
