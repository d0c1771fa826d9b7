//! Selection of requests: those that the program marked, or each recorded call of a function.

use super::requests::{Request, Tracker, Work};
use crate::format::{Event, What};
use crate::hash::Map;
use crate::symbols::Symbols;

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
            done(Request { id: self.calls, start, end, work, queued: Vec::new(), cut: false });
        }
    }

    /// Requests that have begun and not ended.
    pub fn unfinished(&self) -> u64 {
        self.tracker.unfinished()
    }
}

/// Whether a function has this name, or this one within its namespaces.
pub fn is_called(function: &str, name: &str) -> bool {
    function == name || function.strip_suffix(name).is_some_and(|before| before.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_at_the_end_of_paths() {
        let check = |function, name, expected| assert_eq!(is_called(function, name), expected);
        check("handle", "handle", true);
        check("store::Server::handle", "handle", true);
        check("store::Server::handle", "Server::handle", true);
        check("rehandle", "handle", false);
    }
}
