//! Recorded requests: a text of `time_us client service_us` per line.

use leeward_core::units::{Nanos, Time};

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Issue time of the request, from the beginning.
    pub at: Time,
    /// Number of the client, from 0.
    pub client: u32,
    /// Service time.
    pub service: Nanos,
}

/// A recorded sequence of requests, by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    entries: Vec<Entry>,
}

/// Limit of clients, and so of connections, in a trace.
pub const CLIENTS_MAX: u32 = 1_000_000;

/// Limit of a schedule: 50 million requests, 1.6 GB.
pub const REQUESTS_MAX: usize = 50_000_000;

/// The latest time in a trace: a day, in nanoseconds. The longest service time is a minute.
const AT_MAX: u64 = 86_400 * 1_000_000_000;
const SERVICE_MAX: u64 = 60 * 1_000_000_000;

/// Error of a text that is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not `time_us client service_us`.
    #[error(
        "line {line}: `{written}` is not `time_us client service_us`: microseconds with at most three decimals (up to a \
         day, and up to a minute of service), a client below {CLIENTS_MAX}"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Beginning of the line.
        written: String,
    },
    /// A line is earlier than the line before it.
    #[error("line {line} is earlier than the line before it")]
    Order {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The text has no requests.
    #[error("no requests in it: expected `time_us client service_us` per line, such as `12.5 0 10`")]
    Empty,
    /// The text has too many requests.
    #[error("more than {REQUESTS_MAX} requests")]
    TooLong,
}

impl Trace {
    /// Parses a trace. Empty lines and lines that begin with `#` are skipped.
    ///
    /// All other lines must be valid: plain decimals without sign or exponent, separated by blanks,
    /// with times that never decrease.
    ///
    /// # Errors
    /// The first invalid line, with its number; a text without any request, or with too many.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut entries: Vec<Entry> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            // A hostile or mistaken line of a megabyte must not fill the terminal.
            let written = || content.chars().take(40).collect();
            let entry = parse_line(content).ok_or_else(|| TraceError::Line { line: index + 1, written: written() })?;
            if entries.last().is_some_and(|last| last.at > entry.at) {
                return Err(TraceError::Order { line: index + 1 });
            }
            if entries.len() >= REQUESTS_MAX {
                return Err(TraceError::TooLong);
            }
            entries.push(entry);
        }
        if entries.is_empty() { Err(TraceError::Empty) } else { Ok(Trace { entries }) }
    }

    /// The requests, by time.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of clients: the largest client number plus one.
    pub fn clients(&self) -> u32 {
        self.entries.iter().map(|entry| entry.client + 1).max().unwrap_or(1)
    }
}

fn parse_line(line: &str) -> Option<Entry> {
    let mut fields = line.split_ascii_whitespace();
    let at = micros(fields.next()?, AT_MAX)?;
    let client = parse_digits(fields.next()?).filter(|client| *client < u64::from(CLIENTS_MAX))?;
    let service = micros(fields.next()?, SERVICE_MAX)?;
    fields.next().is_none().then_some(Entry { at: Time(at), client: client as u32, service: Nanos(service) })
}

/// Microseconds with up to three decimals, as nanoseconds.
fn micros(text: &str, max: u64) -> Option<u64> {
    let (before, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.len() > 3 {
        return None;
    }
    let thousandths = parse_digits(decimals)? * 10u64.pow(3 - decimals.len() as u32);
    let ns = parse_digits(before)?.checked_mul(1_000)?.checked_add(thousandths)?;
    (ns <= max).then_some(ns)
}

/// Parses digits and nothing else.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_blank_lines_and_entries_are_parsed() {
        let trace = Trace::parse("# a comment\n\n0 0 10\n 12.5\t7  0.25 \r\n12.5 1 1.001\n").unwrap();
        let entry = |at, client, service| Entry { at: Time(at), client, service: Nanos(service) };
        assert_eq!(trace.entries(), [entry(0, 0, 10_000), entry(12_500, 7, 250), entry(12_500, 1, 1_001)]);
        assert_eq!(trace.clients(), 8);
    }

    #[test]
    fn malformed_lines_are_rejected() {
        for line in [
            "1 2",
            "1 2 3 4",
            "-1 0 1",
            "+1 0 1",
            "1e3 0 1",
            "1.2345 0 1",
            "1. 0 1",
            ".5 0 1",
            "1 0.5 1",
            "1 1000000 1",
            "1 0 60000001",
            "99999999999999999999 0 1",
            "1,0,1",
            "x",
            "nan 0 1",
            "1 0 ٣",
        ] {
            let error = Trace::parse(&format!("0 0 1\n{line}\n")).unwrap_err();
            assert!(matches!(error, TraceError::Line { line: 2, .. }), "{line}: {error}");
        }
        assert_eq!(Trace::parse("2 0 1\n1 0 1"), Err(TraceError::Order { line: 2 }));
        assert_eq!(Trace::parse("# nothing\n"), Err(TraceError::Empty));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9. \n\t#e+-]{0,80}|\\PC{0,60}") {
            let _ = Trace::parse(&text);
        }

        #[test]
        fn traces_round_trip(entries in prop::collection::vec((0..AT_MAX, 0..CLIENTS_MAX, 0..SERVICE_MAX), 1..50)) {
            let mut entries = entries;
            entries.sort_unstable();
            let us = |ns: u64| format!("{}.{:03}", ns / 1_000, ns % 1_000);
            let text: String =
                entries.iter().map(|(at, client, service)| format!("{} {client} {}\n", us(*at), us(*service))).collect();
            let trace = Trace::parse(&text).unwrap();
            let read: Vec<_> = trace.entries().iter().map(|entry| (entry.at.0, entry.client, entry.service.0)).collect();
            prop_assert_eq!(read, entries);
        }
    }
}
