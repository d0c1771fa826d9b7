//! A TOML text as a tree whose keys and values know their origin: a line of the file or an
//! override. Checks only TOML's syntax.

use super::ScenarioError;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::num::IntErrorKind;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum file size; a scenario file has a few hundred lines.
const MAX_BYTES: usize = 1_000_000;

/// Description of an integer that ends after its prefix, such as `0x`.
const NO_DIGITS: &str = "a number without digits";

/// Reads a scenario file up to the maximum size, because the file may be an endless device.
pub(super) fn read(path: &Path) -> std::io::Result<String> {
    read_text(path, MAX_BYTES as u64, "longer than 1 MB; a scenario is a few hundred lines")
}

/// Reads a file of up to `longest` bytes; `too_long` is the error message for a longer one.
pub(super) fn read_text(path: &Path, longest: u64, too_long: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(std::io::Error::other(too_long));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

/// Origin of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Line of the file, from 1.
    Line(usize),
    /// Index in the overrides.
    Override(usize),
}

/// A value with its origin.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// A value of the document.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    /// A TOML type that scenarios don't have, with its name for messages.
    Unsupported(&'static str),
}

impl Value {
    /// The value for messages, shortened.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Text(text) => format!("`{}`", text.chars().take(40).collect::<String>().escape_debug()),
            Value::Integer(number) => format!("`{number}`"),
            Value::Number(number) => format!("`{number:?}`"),
            Value::Boolean(on) => format!("`{on}`"),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
            Value::Unsupported(what) => (*what).into(),
        }
    }
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Origin of the key.
    pub(super) origin: Origin,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(super) fn find_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }

    /// Replaces the value of `key`, or adds it.
    pub(super) fn insert(&mut self, key: &str, node: Node) {
        let origin = node.origin;
        match self.find_mut(key) {
            Some(entry) => (entry.node, entry.origin) = (node, origin),
            None => self.entries.push(Entry { key: key.into(), origin, node }),
        }
    }
}

/// Names for origins in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// Name of the file in messages.
    pub(super) file: &'a str,
    /// The overrides, as given.
    pub(super) overrides: &'a [String],
}

impl Source<'_> {
    pub(super) fn error(&self, origin: Origin, key: &str, problem: impl Into<String>) -> ScenarioError {
        let place = match origin {
            Origin::Line(line) => format!("{}:{line}", self.file),
            Origin::Override(index) => {
                let given = self.overrides.get(index).map_or("", String::as_str);
                format!("--set {}", given.chars().take(80).collect::<String>().escape_debug())
            }
        };
        let key: String = key.chars().take(120).collect();
        ScenarioError::Invalid { place, key: key.escape_debug().to_string(), problem: one_line(problem.into()) }
    }
}

fn one_line(text: String) -> String {
    if text.contains(char::is_control) { text.replace(char::is_control, " ") } else { text }
}

/// Parses the text of a file.
pub(super) fn parse(source: &Source<'_>, text: &str) -> Result<Table, ScenarioError> {
    if text.len() > MAX_BYTES {
        return Err(source.error(Origin::Line(1), "file", "longer than 1 MB; a scenario is a few hundred lines"));
    }
    let lines = Lines::new(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(table_of(table.into_inner(), &|span| Origin::Line(lines.line_at(span.start)))),
        Err(error) => {
            let line = error.span().map_or(1, |span| lines.line_at(span.start));
            Err(source.error(Origin::Line(line), "syntax", format!("not TOML: {}", error.message())))
        }
    }
}

/// Parses the value of override `index`: TOML if possible, `[a, b]` without quotes, or else any
/// text.
pub(super) fn parse_value(text: &str, index: usize) -> Node {
    let origin = Origin::Override(index);
    let text = text.trim();
    let wrapped = format!("value = {text}");
    if let Ok(table) = DeTable::parse(&wrapped) {
        let mut entries = table_of(table.into_inner(), &|_| origin).entries;
        if let (Some(entry), true) = (entries.pop(), entries.is_empty())
            // `0x` is meant as a multiple, not as the beginning of a hexadecimal number.
            && !matches!(entry.node.value, Value::Unsupported(NO_DIGITS))
        {
            return entry.node;
        }
    }
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        // TOML reads nested lists; here the brackets are gone after one level.
        Some(inner) if !inner.contains(['[', ']']) => {
            let items = inner.split(',').map(str::trim).filter(|item| !item.is_empty());
            Node { value: Value::List(items.map(|item| parse_value(item, index)).collect()), origin }
        }
        _ => Node { value: Value::Text(text.into()), origin },
    }
}

fn table_of(table: DeTable<'_>, locate: &dyn Fn(Range<usize>) -> Origin) -> Table {
    let mut entries: Vec<(usize, Entry)> = table
        .into_iter()
        .map(|(key, value)| {
            let span = key.span();
            let entry =
                Entry { key: key.get_ref().to_string(), origin: locate(span.clone()), node: node_of(value, locate) };
            (span.start, entry)
        })
        .collect();
    entries.sort_by_key(|(start, _)| *start);
    Table { entries: entries.into_iter().map(|(_, entry)| entry).collect() }
}

fn node_of(value: Spanned<DeValue<'_>>, locate: &dyn Fn(Range<usize>) -> Origin) -> Node {
    let origin = locate(value.span());
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            // The TOML reader accepts `0x` and `0b` as integers without checking their digits.
            Err(error) if *error.kind() == IntErrorKind::Empty => Value::Unsupported(NO_DIGITS),
            Err(_) => Value::Unsupported("a number that is too large"),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Unsupported("a number that can't be read"),
        },
        DeValue::Boolean(on) => Value::Boolean(on),
        DeValue::Datetime(_) => Value::Unsupported("a date"),
        DeValue::Array(items) => Value::List(items.into_iter().map(|item| node_of(item, locate)).collect()),
        DeValue::Table(table) => Value::Table(table_of(table, locate)),
    };
    Node { value, origin }
}

/// Finds the line of an offset.
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { starts: std::iter::once(0).chain(breaks).collect() }
    }

    fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}
