//! Total time of functions that call themselves, directly or through others.
//!
//! The time in which any call of the function ran counts once, as in other profilers. The sum over
//! all calls would count each level of recursion.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::format::EventKind;
use crate::hash::Map;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// System functions that start threads and the program: calls from these have no caller.
pub(crate) const ROOTS: [&str; 9] = [
    "in_new_thread",
    "start_thread",
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "clone",
    "clone3",
    "__clone3",
];

/// Returns the names of functions that may run twice at a time in a thread, from pairs of function
/// and caller.
pub(crate) fn candidates(calls: &[(String, String)]) -> HashSet<String> {
    let recorded: HashSet<&str> = calls.iter().map(|(function, _)| function.as_str()).collect();
    let mut calls_of: HashMap<&str, Vec<&str>> = HashMap::new();
    // Functions that unrecorded code calls, such as the comparison function of a sort.
    let mut callbacks: Vec<&str> = Vec::new();
    for (function, caller) in calls {
        if recorded.contains(caller.as_str()) {
            calls_of.entry(caller).or_default().push(function);
        } else if !ROOTS.contains(&caller.as_str()) {
            callbacks.push(function);
        }
    }
    let reaches_itself = |start: &str| {
        let (mut seen, mut next) = (HashSet::new(), vec![start]);
        let mut called_back = false;
        while let Some(function) = next.pop() {
            // Any function may call unrecorded code, and that code may call any of these.
            let more = if called_back { [].iter() } else { callbacks.iter() };
            called_back = true;
            for callee in calls_of.get(function).into_iter().flatten().chain(more) {
                if *callee == start {
                    return true;
                }
                if seen.insert(*callee) {
                    next.push(callee);
                }
            }
        }
        false
    };
    recorded.into_iter().filter(|function| reaches_itself(function)).map(String::from).collect()
}

/// Time covered by calls that arrive in the order of their ends. Older calls are kept only as sums.
#[derive(Clone, Debug, Default)]
struct Coverage {
    total: u64,
    /// Disjoint ranges: start, end, and the covered time within.
    recent: Vec<(u64, u64, u64)>,
}

/// Limit of ranges that are kept separately.
const RECENT: usize = 64;

impl Coverage {
    fn add(&mut self, start: u64, end: u64) {
        let mut begin = start;
        while let Some((from, until, covered)) = self.recent.last().copied() {
            if until <= start {
                break;
            }
            if from < start {
                // The range overlaps this call by a tick; covered time must not count again.
                begin = until.min(end);
                break;
            }
            self.total -= covered;
            self.recent.pop();
        }
        let covered = end - begin;
        self.total += covered;
        if covered > 0 {
            self.recent.push((begin, end, covered));
        }
        if self.recent.len() > RECENT {
            let (from, _, first) = self.recent.remove(0);
            let second = &mut self.recent[0];
            (second.0, second.2) = (from, second.2 + first);
        }
    }
}

/// Totals by function, and by caller if callers are distinguished.
pub(crate) type Totals = BTreeMap<(String, Option<String>), u64>;

/// Computes the totals of these functions, in one pass over the trace in the order of time.
pub(crate) fn totals(
    trace: &Trace,
    symbols: &mut Symbols,
    names: &HashSet<String>,
    by_caller: bool,
    thread: Option<u32>,
    watch: &mut ProgressCallback<'_>,
) -> Result<Totals, TraceError> {
    /// Limit of remembered functions and callers; beyond it the names are looked up again.
    const KNOWN: usize = 1 << 18;
    let mut keys: Vec<(String, Option<String>)> = Vec::new();
    let mut numbers: HashMap<(String, Option<String>), u32> = HashMap::new();
    let mut known: Map<(u64, u64), Option<u32>> = Map::default();
    let mut covered: Map<(u32, u32), Coverage> = Map::default();
    trace.in_order(
        watch,
        |event| matches!(event.kind, EventKind::Call { .. }) && thread.is_none_or(|thread| thread == event.thread),
        |event| {
            let EventKind::Call { function, caller, duration, .. } = event.kind else { return };
            let caller = if by_caller { caller } else { 0 };
            if known.len() >= KNOWN {
                known.clear();
            }
            let number = *known.entry((function, caller)).or_insert_with(|| {
                let name = symbols.location(function, event.time).function();
                if !names.contains(&name) {
                    return None;
                }
                let caller = by_caller.then(|| match caller {
                    0 => "unknown".into(),
                    caller => symbols.caller(caller, event.time).describe(),
                });
                let key = (name, caller);
                Some(*numbers.entry(key.clone()).or_insert_with(|| {
                    keys.push(key);
                    (keys.len() - 1) as u32
                }))
            });
            if let Some(number) = number {
                let start = event.time.saturating_sub(duration);
                covered.entry((event.thread, number)).or_default().add(start, event.time);
            }
        },
    )?;
    let mut totals = Totals::new();
    for ((_, number), covered) in covered {
        *totals.entry(keys[number as usize].clone()).or_default() += covered.total;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(calls: &[(&str, &str)]) -> Vec<String> {
        let calls: Vec<_> = calls.iter().map(|(function, caller)| (function.to_string(), caller.to_string())).collect();
        let mut found: Vec<String> = candidates(&calls).into_iter().collect();
        found.sort();
        found
    }

    #[test]
    fn recursion_is_found_through_unknown_code() {
        assert_eq!(found(&[("main", "_start"), ("a", "main"), ("b", "a")]), Vec::<String>::new());
        assert_eq!(found(&[("main", "_start"), ("a", "main"), ("a", "a")]), ["a"]);
        assert_eq!(found(&[("main", "_start"), ("a", "main"), ("b", "a"), ("a", "b")]), ["a", "b"]);
        // `a` sorts, and the comparison function may call `a`.
        assert_eq!(
            found(&[("main", "_start"), ("a", "main"), ("compares", "qsort"), ("a", "compares")]),
            ["a", "compares"]
        );
    }

    proptest! {
        #[test]
        fn overlapping_calls_count_each_instant_once(lengths in prop::collection::vec((1_u64..20, 1_u64..6), 1..200)) {
            // A stack of calls that is unwound and grown at random; each return is an event.
            let (mut now, mut open, mut covered) = (0_u64, Vec::new(), Coverage::default());
            let mut moments = HashSet::new();
            let mut close = |start: u64, now: u64, covered: &mut Coverage| {
                covered.add(start, now);
                moments.extend(start..now);
            };
            for (step, closes) in lengths {
                open.push(now);
                now += step;
                for _ in 0..closes.saturating_sub(2) {
                    let Some(start) = open.pop() else { break };
                    close(start, now, &mut covered);
                }
            }
            while let Some(start) = open.pop() {
                close(start, now, &mut covered);
            }
            prop_assert_eq!(covered.total, moments.len() as u64);
        }
    }
}
