//! Suggests functions whose calls may be requests.
//!
//! Such functions are called often, by threads that then wait for more, and contain most of the
//! program's time.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::idle::is_idle;
use super::names::{is_called, is_drop, last_part, without_closures, wraps};
use crate::format::event::OffCpu;
use crate::format::meta::Engine;
use crate::format::{Event, EventKind, ObjectKind};
use crate::hash::Map;
use crate::histogram::Histogram;
use crate::recursion::ROOTS;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Limits of distinguished functions, of callers of each, and of suggested names.
const FUNCTIONS: usize = 1 << 12;
const CALLERS: usize = 16;
const SUGGESTED: usize = 5;
/// Limits of remembered waits per thread, and of threads.
const WAITS: usize = 1 << 10;
const THREADS: usize = 1 << 12;
/// Least number of calls that show a tail.
const FEWEST: u64 = 20;
/// Functions around all that a program or a thread does, besides [`ROOTS`] and `main`: those of C,
/// Go, Python, musl, libstdc++, Java and Node.
const STARTS: [&str; 17] = [
    "_init",
    "_fini",
    "main.main",
    "<module>",
    "_start_c",
    "__clone",
    "execute_native_thread_routine",
    "thread_native_entry",
    "Thread::call_run",
    "JavaThread::run",
    "JavaThread::thread_main_inner",
    "JavaMain",
    "Py_BytesMain",
    "Py_RunMain",
    "pythread_wrapper",
    "node::Start",
    "uv_run",
];
/// Begins of the names in Go's and Rust's runtimes, whose outermost functions never return.
const RUNTIMES: [&str; 4] = ["runtime.", "std::rt::", "std::sys::", "std::thread::"];

/// A function whose calls may be requests. Spans in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The function's name.
    pub function: String,
    /// Recorded calls.
    pub calls: u64,
    /// Recorded calls per second.
    pub per_second: f64,
    /// Median duration. All durations here exclude the thread's waits.
    pub p50: u64,
    /// 99th percentile of the duration.
    pub p99: u64,
    /// Share of the program's working time, in per cent.
    pub share: f64,
    /// It is in a file. Functions that were compiled while the program ran are not: probes can't
    /// find them.
    pub is_in_file: bool,
}

/// Calls of a function with a name, or at an address.
#[derive(Default)]
struct CallStats {
    worked: Histogram,
    waited: u64,
    callers: Map<u64, u64>,
    time: u64,
}

/// Waits of a thread: start, end. Sorted, and without nesting.
#[derive(Default)]
struct ThreadWaits {
    off: Option<(u64, OffCpu)>,
    past: VecDeque<(u64, u64)>,
}

impl ThreadWaits {
    fn push(&mut self, from: u64, until: u64) {
        while self.past.back().is_some_and(|(inner, _)| *inner >= from) {
            self.past.pop_back();
        }
        let from = self.past.back().map_or(from, |(_, before)| from.max(*before));
        if self.past.len() >= WAITS {
            self.past.pop_front();
        }
        if until > from {
            self.past.push_back((from, until));
        }
    }

    fn within(&self, start: u64, end: u64) -> u64 {
        let later = self.past.iter().rev().take_while(|(_, until)| *until > start);
        later.map(|(from, until)| (*until).min(end).saturating_sub((*from).max(start))).sum()
    }

    fn take(&mut self, event: &Event) {
        let now = event.time;
        match event.kind {
            EventKind::SwitchedOut { reason: why, .. } => self.off = Some((now, why)),
            EventKind::Woken { .. } | EventKind::SwitchedIn { .. } => {
                if let Some((since, OffCpu::Blocked)) = self.off.take() {
                    self.push(since, now);
                }
            }
            EventKind::Waited { object: ObjectKind::Condition, wait, .. } => self.push(now.saturating_sub(wait), now),
            _ => {}
        }
    }
}

/// Returns the functions that most likely have one call per request, the likeliest first. `tried`
/// is one that has not.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn candidates(
    trace: &Trace,
    symbols: &mut Symbols,
    tried: Option<&str>,
    watch: &mut ProgressCallback<'_>,
) -> Result<Vec<Candidate>, TraceError> {
    let mut threads: Map<u32, ThreadWaits> = Map::default();
    let mut functions: Map<u64, CallStats> = Map::default();
    trace.in_order(
        watch,
        |_| true,
        |event| {
            if threads.len() >= THREADS && !threads.contains_key(&event.thread) {
                threads.clear();
            }
            let waits = threads.entry(event.thread).or_default();
            waits.take(event);
            let EventKind::Call { function, caller, duration, .. } = event.kind else { return };
            if functions.len() >= FUNCTIONS && !functions.contains_key(&function) {
                return;
            }
            let calls = functions.entry(function).or_default();
            let waited = waits.within(event.time.saturating_sub(duration), event.time);
            calls.worked.record(duration.saturating_sub(waited));
            (calls.waited, calls.time) = (calls.waited.saturating_add(waited), event.time);
            if calls.callers.len() < CALLERS || calls.callers.contains_key(&caller) {
                *calls.callers.entry(caller).or_default() += 1;
            }
        },
    )?;
    let named = named(symbols, functions, tried);
    Ok(ranked(trace, &named))
}

/// A function by its name.
struct NamedFunction {
    name: String,
    worked: Histogram,
    waited: u64,
    /// The most frequent caller, with the number of calls.
    caller: Option<(String, u64)>,
    is_own: bool,
    is_in_file: bool,
    /// It starts the program or a thread, has no calls, or is the C library's or another one's that
    /// knows no requests.
    is_excluded: bool,
}

fn ranked(trace: &Trace, named: &HashMap<String, NamedFunction>) -> Vec<Candidate> {
    let busiest = named.values().map(|one| one.worked.total()).max().unwrap_or(0);
    let worked = trace.pace().used.max(busiest).max(1);
    let seconds = trace.counts().span().max(1) as f64 / 1e9;
    let is_likely = |one: &NamedFunction| {
        let total = one.worked.total();
        // A function that mostly waits is a loop, or the work of one.
        one.worked.count() >= FEWEST
            && total as f64 >= 0.05 * worked as f64
            && one.waited <= total
            && !one.is_excluded
            && !is_idle(&one.name)
            && !is_drop(&one.name)
    };
    let mut all: Vec<(f64, Candidate)> = Vec::new();
    for one in named.values() {
        let (calls, total) = (one.worked.count(), one.worked.total());
        let share = total as f64 / worked as f64;
        if !is_likely(one) || is_same(one, named) {
            continue;
        }
        let (p50, p99) = (one.worked.percentile(50.0), one.worked.percentile(99.0));
        let spread = p99.saturating_sub(p50) as f64 / p99.max(1) as f64;
        // Several calls per call of the caller are parts of something. Samples don't tell how many
        // there are: of two functions that are likely, one within the other, the outer is.
        let caller = one.caller.as_ref().and_then(|(caller, _)| named.get(caller));
        let is_part = caller.is_some_and(|caller| match trace.header().engine {
            Engine::Samples => is_likely(caller),
            _ => calls as f64 > caller.worked.count() as f64 * 1.5,
        });
        let score =
            share.min(1.0) * (0.3 + spread) * if is_part { 0.3 } else { 1.0 } * if one.is_own { 1.0 } else { 0.5 };
        let per_second = calls as f64 / seconds;
        let share = share.min(1.0) * 100.0;
        all.push((
            score,
            Candidate { function: one.name.clone(), calls, per_second, p50, p99, share, is_in_file: one.is_in_file },
        ));
    }
    all.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then_with(|| (Reverse(a.1.calls), &a.1.function).cmp(&(Reverse(b.1.calls), &b.1.function)))
    });
    all.into_iter().map(|(_, candidate)| candidate).take(SUGGESTED).collect()
}

/// Groups functions by name, each with its caller.
fn named(symbols: &mut Symbols, functions: Map<u64, CallStats>, tried: Option<&str>) -> HashMap<String, NamedFunction> {
    let mut named: HashMap<String, NamedFunction> = HashMap::new();
    for (function, calls) in functions {
        let location = symbols.location(function, calls.time);
        let is_own = location.source().and_then(|frame| frame.file.as_deref()).is_none_or(is_own);
        let name = location.function();
        let is_excluded = location.module.as_deref().is_some_and(is_system)
            || is_start(&name)
            || tried.is_some_and(|tried| is_called(&name, tried));
        let most = calls.callers.iter().max_by_key(|(caller, times)| (**times, **caller));
        let caller = most.filter(|(caller, _)| **caller != 0);
        let caller = caller.map(|(caller, times)| (symbols.caller(*caller, calls.time).function(), *times));
        let one = named.entry(name.clone()).or_insert_with(|| NamedFunction {
            name,
            worked: Histogram::default(),
            waited: 0,
            caller: None,
            is_own,
            is_in_file: location.module.is_some(),
            is_excluded,
        });
        one.worked.add(&calls.worked);
        one.waited = one.waited.saturating_add(calls.waited);
        if caller.as_ref().is_some_and(|(_, times)| one.caller.as_ref().is_none_or(|(_, most)| times > most)) {
            one.caller = caller;
        }
    }
    named
}

/// Returns whether a file belongs to the program, and not to a library in its build.
fn is_own(file: &str) -> bool {
    !["/.cargo/registry/", "/.cargo/git/", "/rustc/"].iter().any(|part| file.contains(part))
        && !file.starts_with("/usr/")
}

/// Returns whether a module is the C library, a part of it, or the kernel's.
pub fn is_system(module: &str) -> bool {
    const SYSTEM: [&str; 8] =
        ["libc.so", "libc.musl", "ld-", "libpthread", "libm.so", "libstdc++.so", "libgcc_s.so", "["];
    SYSTEM.iter().any(|begin| module.starts_with(begin))
}

/// Returns whether a function starts the program or a thread: it contains everything.
pub fn is_start(name: &str) -> bool {
    last_part(without_closures(name)) == "main"
        || ROOTS.contains(&name)
        || STARTS.contains(&name)
        || RUNTIMES.iter().any(|begin| name.trim_start_matches('<').starts_with(begin))
}

/// Returns whether a function is the same work as its caller, or as a function that it wraps; then
/// only the other is suggested.
fn is_same(one: &NamedFunction, named: &HashMap<String, NamedFunction>) -> bool {
    let alike = |outer: &NamedFunction, inner: &NamedFunction| {
        let (a, b) = (outer.worked.count() as f64, inner.worked.count() as f64);
        b >= a * 0.9 && b <= a * 1.1 && inner.worked.total() as f64 >= outer.worked.total() as f64 * 0.9
    };
    let is_named = |one: &NamedFunction| !(last_part(&one.name) == "poll" || wraps(&one.name, ""));
    let caller = one.caller.as_ref().and_then(|(caller, _)| named.get(caller));
    let within = caller.is_some_and(|caller| {
        caller.name != one.name
            && !caller.is_excluded
            && alike(caller, one)
            && caller.waited <= caller.worked.total()
            && (caller.is_own || !one.is_own)
            && (is_named(caller) || !is_named(one))
    });
    let calls_it = |other: &&NamedFunction| other.caller.as_ref().is_some_and(|(caller, _)| *caller == one.name);
    let wraps_other = named.values().filter(calls_it).any(|inner| {
        inner.name != one.name
            && alike(one, inner)
            && (inner.is_own && !one.is_own || is_named(inner) && !is_named(one))
    });
    within || wraps_other
}
