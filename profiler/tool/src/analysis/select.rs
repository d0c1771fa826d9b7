//! Selection of requests: those that the program marked, or each recorded call of a function.

use super::requests::{Request, Tracker, Work};
use crate::format::{Event, What};
use crate::hash::Map;
use crate::symbols::Symbols;
use crate::trace::{Trace, TraceError, Watch};

/// Functions of which is remembered whether they bear the name.
const KNOWN: usize = 1 << 18;

/// Selection of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Requests that the program marked.
    Marked,
    /// Each recorded call of the function with this name, as far as it took longer than the threshold of recording.
    CallsOf(String),
}

/// Finds requests in events in the order of time.
#[derive(Debug)]
pub struct Selector {
    selection: Selection,
    tracker: Tracker,
    /// Which functions bear the name.
    known: Map<u64, bool>,
    calls: u64,
}

impl Selector {
    /// A selector.
    pub fn new(selection: &Selection) -> Selector {
        Selector { selection: selection.clone(), tracker: Tracker::default(), known: Map::default(), calls: 0 }
    }

    /// Hands all requests of a trace to `each`, in the order of their ends.
    ///
    /// # Errors
    /// When the trace can't be read any more, or the watcher stops it.
    pub fn all(
        trace: &Trace,
        symbols: &mut Symbols,
        selection: &Selection,
        watch: &mut Watch<'_>,
        mut each: impl FnMut(Request),
    ) -> Result<(), TraceError> {
        let mut selector = Selector::new(selection);
        trace.in_order(
            watch,
            |event| Selector::concerns(selection, event),
            |event| selector.event(event, symbols, &mut each),
        )
    }

    /// Whether an event can matter to [`Selector::event`].
    pub fn concerns(selection: &Selection, event: &Event) -> bool {
        match selection {
            Selection::Marked => Tracker::concerns(event),
            Selection::CallsOf(_) => matches!(event.what, What::Call { .. }),
        }
    }

    /// Takes an event; hands requests that it ends to `done`.
    pub fn event(&mut self, event: &Event, symbols: &mut Symbols, mut done: impl FnMut(Request)) {
        let Selection::CallsOf(name) = &self.selection else {
            self.tracker.event(event, done);
            return;
        };
        let What::Call { function, duration, .. } = event.what else { return };
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let bears = *self
            .known
            .entry(function)
            .or_insert_with(|| is_called(&symbols.place(function, event.time).function(), name));
        if bears {
            self.calls += 1;
            let (start, end) = (event.time.saturating_sub(duration), event.time);
            let work = vec![Work { thread: event.thread, start, end }];
            done(Request { id: self.calls, start, end, work, queued: Vec::new(), cut: false, label: 0 });
        }
    }

    /// Requests that have begun and not ended.
    pub fn unfinished(&self) -> u64 {
        self.tracker.unfinished()
    }
}

/// Names of recorded functions that are most like this one, at most five.
///
/// # Errors
/// When the trace can't be read any more, or the watcher stops it.
pub fn alike(
    trace: &Trace,
    symbols: &mut Symbols,
    name: &str,
    watch: &mut Watch<'_>,
) -> Result<Vec<String>, TraceError> {
    let mut functions: Map<u64, u64> = Map::default();
    trace.overlapping(0, u64::MAX, watch, |event| {
        if let What::Call { function, .. } = event.what
            && (functions.len() < KNOWN || functions.contains_key(&function))
        {
            functions.insert(function, event.time);
        }
    })?;
    let mut names: Vec<String> =
        functions.into_iter().map(|(function, time)| symbols.place(function, time).function()).collect();
    names.sort();
    names.dedup();
    names.sort_by_key(|other| distance(&last(other).to_lowercase(), &last(name).to_lowercase()));
    names.truncate(5);
    Ok(names)
}

/// Name without its namespaces.
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// How many letters differ; none where one name is a part of the other.
fn distance(a: &str, b: &str) -> usize {
    if a.contains(b) || b.contains(a) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, of_a) in a.chars().enumerate() {
        let mut before = i;
        row[0] = i + 1;
        for (j, of_b) in b.chars().enumerate() {
            let replaced = before + usize::from(of_a != of_b);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Whether a function has this name, or this one within its namespaces.
pub fn is_called(function: &str, name: &str) -> bool {
    function == name || function.strip_suffix(name).is_some_and(|before| before.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        let check = |a, b, expected| assert_eq!(distance(a, b), expected, "{a} {b}");
        check("handle", "handle_request", 0);
        check("kitten", "sitting", 3);
        check("abc", "xyz", 3);
    }

    #[test]
    fn names_match_at_the_end_of_paths() {
        let check = |function, name, expected| assert_eq!(is_called(function, name), expected);
        check("handle", "handle", true);
        check("store::Server::handle", "handle", true);
        check("store::Server::handle", "Server::handle", true);
        check("rehandle", "handle", false);
    }
}
