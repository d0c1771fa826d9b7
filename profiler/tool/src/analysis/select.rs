//! Selection of requests: requests that the program marked, or each recorded call of a function.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::idle::is_idle;
pub use super::names::is_called;
use super::names::{is_async_body_of, is_drop, without_closures};
use super::requests::{Request, Tracker, WorkSpan};
use crate::format::{Event, EventKind};
use crate::hash::{Map, Set};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Limit of distinguished functions.
const FUNCTIONS_MAX: usize = 1 << 18;
/// Limit of distinguished callers of one function.
const CALLERS: usize = 64;
/// Limit of functions that are searched for inlined ones.
const SEARCHED_MAX: usize = 1 << 12;
/// Limits of remembered waits for work per thread, and of such threads.
const WAITS: usize = 1 << 12;
const THREADS: usize = 1 << 12;

/// Selection of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// Requests that the program marked.
    Marked,
    /// Each recorded call of these functions, if it exceeded the recording threshold.
    CallsOf(Functions),
}

/// Functions whose calls count as requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Functions {
    addresses: Arc<Set<u64>>,
    /// Functions that wait for work: their time is not part of a request.
    idle: Arc<Set<u64>>,
    /// Functions into which the requested function is inlined: it has no calls of its own.
    pub inlined_into: Vec<String>,
    /// Function that calls it several times per own call, with the number of calls: like a state
    /// machine within one request.
    pub repeat_caller: Option<(String, f64)>,
}

impl Functions {
    /// Finds the functions with this name.
    ///
    /// An exact match comes first; then the bodies of an `async fn`; then functions into which it
    /// is inlined. Of several that call each other only the outermost counts, so that no request is
    /// counted twice. The result may be empty.
    ///
    /// # Errors
    /// The trace can't be read any more, or `watch` stops the reading.
    pub fn find(
        trace: &Trace,
        symbols: &mut Symbols,
        name: &str,
        watch: &mut ProgressCallback<'_>,
    ) -> Result<Functions, TraceError> {
        let recorded = recorded(trace, watch)?;
        let names: Map<u64, String> = recorded
            .iter()
            .map(|(function, calls)| (*function, symbols.location(*function, calls.time).function()))
            .collect();
        let all = |is_meant: &dyn Fn(&str) -> bool| -> Set<u64> {
            names.iter().filter(|(_, name)| is_meant(name)).map(|(function, _)| *function).collect()
        };
        // The name `poll` does not mean a function that waits for work.
        let mut addresses = all(&|other| is_called(other, name) && (other == name || !is_idle(other)));
        if addresses.is_empty() {
            addresses = all(&|other| is_called(without_closures(other), name) && !is_idle(other));
        }
        let mut in_line = Vec::new();
        if addresses.is_empty() {
            let mut often: Vec<(&u64, &FunctionCalls)> = recorded.iter().collect();
            often.sort_by_key(|(function, calls)| (std::cmp::Reverse(calls.calls), **function));
            let is_candidate = |function: &u64| !is_idle(&names[function]) && !is_drop(&names[function]);
            for (function, calls) in often.into_iter().take(SEARCHED_MAX).filter(|(function, _)| is_candidate(function))
            {
                let is_in_line = |other: &String| is_called(other, name) || is_called(without_closures(other), name);
                let is_in = symbols.inlined_functions(*function, calls.time).iter().any(is_in_line);
                if is_in || symbols.full_name(*function, calls.time).is_some_and(|whole| is_async_body_of(&whole, name))
                {
                    addresses.insert(*function);
                }
            }
            in_line = addresses.iter().map(|function| names[function].clone()).collect();
        }
        let inner: Vec<u64> =
            addresses.iter().copied().filter(|one| is_within(*one, &addresses, &recorded, &names, symbols)).collect();
        if inner.len() < addresses.len() {
            inner.iter().for_each(|one| _ = addresses.remove(one));
        }
        in_line.retain(|name| addresses.iter().any(|function| names[function] == *name));
        in_line.sort();
        in_line.dedup();
        let idle = all(&is_idle);
        let several_in = several_in(&addresses, &recorded, &names, symbols);
        Ok(Functions {
            addresses: Arc::new(addresses),
            idle: Arc::new(idle),
            inlined_into: in_line,
            repeat_caller: several_in,
        })
    }

    /// Returns whether no function was found.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// Returns the function with most calls of these functions, if each of its calls makes several of
/// them.
fn several_in(
    of: &Set<u64>,
    recorded: &Map<u64, FunctionCalls>,
    names: &Map<u64, String>,
    symbols: &mut Symbols,
) -> Option<(String, f64)> {
    /// With fewer calls, a call may be a thread's whole life.
    const FEWEST: u64 = 20;
    const SEVERAL: f64 = 1.5;
    let mut callers: BTreeMap<String, u64> = BTreeMap::new();
    for function in of {
        let recorded_calls = &recorded[function];
        for (caller, calls) in recorded_calls.callers.iter().filter(|(caller, _)| **caller != 0) {
            *callers.entry(symbols.caller(*caller, recorded_calls.time).function()).or_default() += calls;
        }
    }
    let (caller, calls) = callers.into_iter().max_by_key(|(_, calls)| *calls)?;
    if of.iter().any(|function| names[function] == caller) {
        return None;
    }
    let of_caller = names.iter().filter(|(_, name)| **name == caller);
    let times: u64 = of_caller.map(|(function, _)| recorded[function].calls).sum();
    let several = calls as f64 / times.max(1) as f64;
    (times >= FEWEST && several >= SEVERAL).then_some((caller, several))
}

/// Returns whether nearly all calls of a function come from another one of these.
fn is_within(
    function: u64,
    of: &Set<u64>,
    recorded: &Map<u64, FunctionCalls>,
    names: &Map<u64, String>,
    symbols: &mut Symbols,
) -> bool {
    let (calls, own) = (&recorded[&function], &names[&function]);
    let others: Set<&String> = of.iter().map(|one| &names[one]).filter(|name| *name != own).collect();
    if others.is_empty() {
        return false;
    }
    let within: u64 = calls
        .callers
        .iter()
        .filter(|(caller, _)| others.contains(&symbols.caller(**caller, calls.time).function()))
        .map(|(_, calls)| calls)
        .sum();
    within * 10 >= calls.calls * 9
}

/// Calls of a function.
#[derive(Default)]
struct FunctionCalls {
    calls: u64,
    /// Time of the last call.
    time: u64,
    callers: Map<u64, u64>,
}

/// Collects the recorded functions.
fn recorded(trace: &Trace, watch: &mut ProgressCallback<'_>) -> Result<Map<u64, FunctionCalls>, TraceError> {
    let mut functions: Map<u64, FunctionCalls> = Map::default();
    trace.overlapping(0, u64::MAX, watch, |event| {
        if let EventKind::Call { function, caller, .. } = event.kind
            && (functions.len() < FUNCTIONS_MAX || functions.contains_key(&function))
        {
            let entry = functions.entry(function).or_default();
            (entry.calls, entry.time) = (entry.calls + 1, entry.time.max(event.time));
            if entry.callers.len() < CALLERS || entry.callers.contains_key(&caller) {
                *entry.callers.entry(caller).or_default() += 1;
            }
        }
    })?;
    Ok(functions)
}

/// Finds requests in events in the order of time.
#[derive(Debug)]
pub struct Selector {
    selection: Selection,
    tracker: Tracker,
    /// Waits for work of each thread, in the order of their ends.
    waits: Map<u32, VecDeque<(u64, u64)>>,
    calls: u64,
}

impl Selector {
    /// Creates a selector.
    pub fn new(selection: &Selection) -> Selector {
        Selector { selection: selection.clone(), tracker: Tracker::default(), waits: Map::default(), calls: 0 }
    }

    /// Passes all requests of a trace to `each`, in the order of their ends.
    ///
    /// # Errors
    /// The trace can't be read any more, or `watch` stops the reading.
    pub fn all(
        trace: &Trace,
        selection: &Selection,
        watch: &mut ProgressCallback<'_>,
        mut each: impl FnMut(Request),
    ) -> Result<(), TraceError> {
        let mut selector = Selector::new(selection);
        trace.in_order(watch, |event| Selector::concerns(selection, event), |event| selector.event(event, &mut each))
    }

    /// Returns whether an event can matter to [`Selector::event`].
    pub fn concerns(selection: &Selection, event: &Event) -> bool {
        match selection {
            Selection::Marked => Tracker::concerns(event),
            Selection::CallsOf(_) => matches!(event.kind, EventKind::Call { .. }),
        }
    }

    /// Processes an event; passes requests that it ends to `done`.
    pub fn event(&mut self, event: &Event, mut done: impl FnMut(Request)) {
        let Selection::CallsOf(functions) = &self.selection else {
            self.tracker.event(event, done);
            return;
        };
        let EventKind::Call { function, duration, .. } = event.kind else { return };
        let (start, end) = (event.time.saturating_sub(duration), event.time);
        if functions.addresses.contains(&function) {
            self.calls += 1;
            let (work, idle) = self.work(event.thread, start, end);
            done(Request {
                id: self.calls,
                start,
                end,
                work,
                queued: Vec::new(),
                truncated: false,
                label: 0,
                idle,
                context: None,
            });
        } else if functions.idle.contains(&function) {
            self.wait(event.thread, start, end);
        }
    }

    /// Remembers that a thread waited for work.
    fn wait(&mut self, thread: u32, start: u64, end: u64) {
        if self.waits.len() >= THREADS && !self.waits.contains_key(&thread) {
            self.waits.clear();
        }
        let waits = self.waits.entry(thread).or_default();
        // Waiting functions call each other.
        while waits.back().is_some_and(|(inner, _)| *inner >= start) {
            waits.pop_back();
        }
        if waits.len() >= WAITS {
            waits.pop_front();
        }
        waits.push_back((start, end));
    }

    /// Returns the parts of a call without waits for work, and the total waiting time.
    fn work(&self, thread: u32, start: u64, end: u64) -> (Vec<WorkSpan>, u64) {
        let waits = self.waits.get(&thread).into_iter().flatten();
        let (mut work, mut idle, mut from) = (Vec::new(), 0, start);
        for (begin, until) in waits.filter(|(begin, until)| *until > start && *begin < end) {
            let begin = (*begin).clamp(from, end);
            if begin > from {
                work.push(WorkSpan { thread, start: from, end: begin });
            }
            let until = (*until).clamp(begin, end);
            idle += until - begin;
            from = until;
        }
        if end > from || work.is_empty() {
            work.push(WorkSpan { thread, start: from, end });
        }
        (work, idle)
    }

    /// Returns the number of requests without an end.
    pub fn unfinished(&self) -> u64 {
        self.tracker.unfinished()
    }
}

/// Returns at most five names of recorded functions that are most similar to this one.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn similar_names(
    trace: &Trace,
    symbols: &mut Symbols,
    name: &str,
    watch: &mut ProgressCallback<'_>,
) -> Result<Vec<String>, TraceError> {
    let recorded = recorded(trace, watch)?;
    let names: Vec<String> =
        recorded.into_iter().map(|(function, calls)| symbols.location(function, calls.time).function()).collect();
    Ok(closest_names(names, name))
}

/// Returns at most five of these names, the most similar to `name` first.
pub fn closest_names(mut names: Vec<String>, name: &str) -> Vec<String> {
    names.sort();
    names.dedup();
    names.sort_by_cached_key(|other| distance(&last(other).to_lowercase(), &last(name).to_lowercase()));
    names.truncate(5);
    names
}

/// Returns a name without its namespaces.
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns the edit distance of a name from what was asked for; 0 if that is a part of the name.
fn distance(name: &str, asked: &str) -> usize {
    if name.contains(asked) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=asked.chars().count()).collect();
    for (i, of_name) in name.chars().enumerate() {
        let mut before = i;
        row[0] = i + 1;
        for (j, of_asked) in asked.chars().enumerate() {
            let replaced = before + usize::from(of_name != of_asked);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edit_distance_counts_letters() {
        let check = |a, b, expected| assert_eq!(distance(a, b), expected, "{a} {b}");
        check("handle_request", "handle", 0);
        // A short name is a part of many others and like none of them.
        check("le", "handle", 4);
        check("kitten", "sitting", 3);
        check("abc", "xyz", 3);
    }

    #[test]
    fn idle_waits_are_excluded_from_a_call() {
        let mut selector = Selector::new(&Selection::Marked);
        // One waiting function calls another; an earlier wait does not matter.
        for (start, end) in [(0, 5), (22, 28), (20, 30), (50, 60)] {
            selector.wait(1, start, end);
        }
        let at = |start, end| WorkSpan { thread: 1, start, end };
        assert_eq!(selector.work(1, 10, 100), (vec![at(10, 20), at(30, 50), at(60, 100)], 20));
        assert_eq!(selector.work(1, 25, 55), (vec![at(30, 50)], 10));
        assert_eq!(selector.work(2, 10, 100), (vec![WorkSpan { thread: 2, start: 10, end: 100 }], 0));
    }
}
