//! Arguments of one service: flags of `leeward serve` and keys of its configuration file.
//!
//! Plain data. Does not contain the reading of a command line; the program does that.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// An argument of a service.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The flag without its dashes, and the key in a file.
    ///
    /// Services that share an argument list the same constant.
    pub name: &'static str,
    /// Placeholder of the value in the help, such as `FILE`.
    pub value_name: &'static str,
    /// Help, without a full stop.
    pub help: &'static str,
    /// Accepted values.
    pub kind: Kind,
    /// Value of an argument that is not given.
    pub default: Option<&'static str>,
    /// Policy for a value that is given with another service.
    pub unsupported: UnsupportedPolicy,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A line of text.
    Text,
    /// A line of text that passes this check; the check's error lists the accepted values.
    Checked(fn(&str) -> Result<(), String>),
    /// A whole number.
    Count {
        /// Least accepted value.
        least: u32,
        /// Greatest accepted value.
        most: u32,
    },
    /// A file's path.
    File,
}

/// Policy for an argument that is given with a service that does not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedPolicy {
    /// Rejected, unless the value is the default.
    Refused,
    /// Accepted and ignored.
    Ignored,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Value of [`Kind::Text`] and [`Kind::Checked`].
    Text(String),
    /// Value of [`Kind::Count`].
    Count(u32),
    /// Value of [`Kind::File`].
    File(PathBuf),
}

impl Argument {
    /// Parses a value. Only [`Argument::check`] runs the check of [`Kind::Checked`].
    ///
    /// # Errors
    /// A message with the accepted values.
    pub fn read(&self, written: &OsStr) -> Result<Value, String> {
        let text = || written.to_str().ok_or_else(|| String::from("accepted: UTF-8"));
        match self.kind {
            Kind::Text | Kind::Checked(_) => Ok(Value::Text(text()?.into())),
            Kind::File => Ok(Value::File(written.into())),
            Kind::Count { least, most } => {
                let count = text()?.parse().ok().filter(|count| (least..=most).contains(count));
                count.map(Value::Count).ok_or_else(|| format!("accepted: a whole number from {least} to {most}"))
            }
        }
    }

    /// Runs the check of [`Kind::Checked`]; values of other kinds pass.
    ///
    /// # Errors
    /// A message with the accepted values.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match (self.kind, value) {
            (Kind::Checked(check), Value::Text(text)) => check(text),
            _ => Ok(()),
        }
    }

    /// Returns the default as a value.
    pub fn default_value(&self) -> Option<Value> {
        self.default.and_then(|text| self.read(text.as_ref()).ok())
    }
}

/// Values of arguments, by argument name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Collects the defaults of these arguments.
    pub fn defaults<'a>(arguments: impl IntoIterator<Item = &'a Argument>) -> Self {
        let pairs = arguments.into_iter().filter_map(|argument| Some((argument.name, argument.default_value()?)));
        Values(pairs.collect())
    }

    /// Sets the value of `name`.
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.0.insert(name, value);
    }

    /// Returns the value of `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the text of `name`; `None` if `name` has no value or another kind.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of `name`; `None` if `name` has no value or another kind.
    pub fn count(&self, name: &str) -> Option<u32> {
        match self.get(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// Returns the path of `name`; `None` if `name` has no value or another kind.
    pub fn file(&self, name: &str) -> Option<&Path> {
        match self.get(name) {
            Some(Value::File(path)) => Some(path),
            _ => None,
        }
    }
}

/// Parses a size such as `64MB` into bytes; units are powers of 1024, as in memcached.
///
/// # Errors
/// Any other text, or a size of zero. The message lists the accepted forms.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}`; accepted: a size such as `64MB` or `2GB`");
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: usize = match &text[number.len()..] {
        "KB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENT: Argument = Argument {
        name: "parts",
        value_name: "N",
        help: "Parts",
        kind: Kind::Count { least: 1, most: 9 },
        default: Some("2"),
        unsupported: UnsupportedPolicy::Refused,
    };

    #[test]
    fn argument_values_are_parsed_by_kind() {
        assert_eq!(ARGUMENT.read("9".as_ref()), Ok(Value::Count(9)));
        assert!(ARGUMENT.read("10".as_ref()).unwrap_err().contains("from 1 to 9"));
        let file = Argument { kind: Kind::File, ..ARGUMENT };
        assert_eq!(file.read("a/b".as_ref()), Ok(Value::File("a/b".into())));
        let even = |text: &str| if text.len().is_multiple_of(2) { Ok(()) } else { Err("accepted: even".into()) };
        let checked = Argument { kind: Kind::Checked(even), ..ARGUMENT };
        assert!(checked.check(&Value::Text("abc".into())).is_err() && checked.check(&Value::Text("ab".into())).is_ok());
    }

    #[test]
    fn defaults_are_values() {
        let mut values = Values::defaults(&[ARGUMENT]);
        assert_eq!((values.count("parts"), values.text("parts"), values.file("none")), (Some(2), None, None));
        values.set("parts", Value::Count(3));
        assert_eq!(values.count("parts"), Some(3));
    }

    #[test]
    fn sizes_need_a_unit_and_are_not_zero() {
        assert_eq!((size("3KB"), size("64MB")), (Ok(3 << 10), Ok(64 << 20)));
        for wrong in ["0MB", "00GB", "64", "MB", "-1MB", "99999999999GB"] {
            assert!(size(wrong).unwrap_err().contains("accepted: a size such as"), "{wrong}");
        }
    }
}
