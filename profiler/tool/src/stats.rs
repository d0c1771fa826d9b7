//! Statistics of calls, waits and holds: a bounded number of histograms, one per function and
//! caller, in one pass.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::analysis::follow::follow;
use crate::analysis::names::wraps;
use crate::analysis::sums::Sums;
use crate::analysis::weights::RequestWeights;
use crate::analysis::{Request, Selection};
use crate::format::event::Sink;
use crate::format::{Event, EventKind, ObjectKind};
use crate::hash::Map;
use crate::histogram::Histogram;
use crate::recursion;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Limit of histograms: at most 250 MB. Beyond it new pairs drop the caller, then the function.
const MOST: usize = 1 << 14;

/// Kind of a measured duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// A call of a function.
    Call,
    /// A wait for a lock or a similar object; the function is the one that waited.
    Wait,
    /// A hold of a lock; the function is the one that took it.
    Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: SpanKind,
    object: ObjectKind,
    /// The function, or the address of a wait or hold.
    address: u64,
    caller: u64,
}

/// A row of statistics. Durations in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct StatsRow {
    /// Kind of the measured durations.
    pub sort: SpanKind,
    /// The function; for waits and holds the object and location.
    pub name: String,
    /// The caller, with its line.
    pub caller: Option<String>,
    /// Number of recorded durations; per request: the number of requests.
    pub count: u64,
    /// Sum of the durations; of nested calls of a function only the outermost counts.
    pub total: u64,
    /// Mean duration.
    pub mean: u64,
    /// Median duration.
    pub p50: u64,
    /// 99th percentile of the duration.
    pub p99: u64,
    /// The requested percentile.
    pub wanted: u64,
    /// Greatest duration.
    pub max: u64,
    /// The requested percentile is at most one tick, so it shows nothing.
    pub unresolved: bool,
    /// Number of wrappers of the function, which have no row of their own.
    pub wrappers: usize,
}

/// Selection of the statistics to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Percentile for the ranking.
    pub percentile: f64,
    /// Distinguish callers.
    pub by_caller: bool,
    /// Only names that contain this text.
    pub filter: Option<String>,
    /// Only this thread, by the writer's number.
    pub thread: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options { percentile: 99.99, by_caller: true, filter: None, thread: None }
    }
}

/// Number of cached keys that need no map lookup.
const RECENT: usize = 1 << 10;

/// Opens a trace and counts its events meanwhile, on up to `threads` threads. The result does not
/// depend on their number.
///
/// # Errors
/// See [`Trace::open`].
pub fn open(
    path: &Path,
    options: &Options,
    threads: usize,
    watch: &mut ProgressCallback<'_>,
) -> Result<(Trace, Collector), TraceError> {
    let key_count = Arc::new(AtomicUsize::new(0));
    let new = |of: usize| Collector { total_keys: (of > 1).then(|| Arc::clone(&key_count)), ..Collector::new(options) };
    let (trace, parts) = Trace::open_on(path, threads, watch, new)?;
    if let Some(collector) = Collector::merged(parts) {
        return Ok((trace, collector));
    }
    // So many keys that some share a histogram. The order of events determines which ones, and that
    // requires one thread.
    let mut collector = Collector::new(options);
    trace.overlapping(0, u64::MAX, watch, |event| collector.event(event))?;
    Ok((trace, collector))
}

/// Returns the rows, ranked by the requested percentile.
///
/// The total of a recursive function counts each moment once; such a function requires a second
/// pass over the trace.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn rows(
    trace: &Trace,
    collector: Collector,
    symbols: &mut Symbols,
    options: &Options,
    watch: &mut ProgressCallback<'_>,
) -> Result<Vec<StatsRow>, TraceError> {
    let calls = collector.calls(symbols);
    let names = recursion::candidates(&calls);
    let wrappers =
        if options.by_caller || options.filter.is_some() { HashMap::new() } else { collector.wrappers(&calls) };
    let mut rows = collector.rows(symbols, options, trace.resolution());
    fold(&mut rows, &wrappers);
    if names.is_empty() {
        return Ok(rows);
    }
    let totals = recursion::totals(trace, symbols, &names, options.by_caller, options.thread, watch)?;
    for row in rows.iter_mut().filter(|row| row.sort == SpanKind::Call) {
        if let Some(total) = totals.get(&(row.name.clone(), row.caller.clone())) {
            row.total = *total;
        }
    }
    Ok(rows)
}

/// Collects statistics from events. With too many keys, the order of events determines which share
/// a histogram.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// Index of each key in `keys` and `counted`.
    indices: Map<Key, usize>,
    keys: Vec<Key>,
    counted: Vec<KeyCounts>,
    /// Recently used keys and their indices, by a hash of function and caller.
    recent: Vec<CachedKey>,
    thread: Option<u32>,
    /// Number of keys in all collectors of the same trace; each collector sees a part of the
    /// events.
    total_keys: Option<Arc<AtomicUsize>>,
    /// There were too many keys, and this collector has stopped counting.
    overflowed: bool,
}

/// A key and its index, within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct CachedKey(Key, usize);

/// Counts of a key, within one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct KeyCounts {
    spans: Histogram,
    /// Time of the last event: the key's addresses can be resolved at that time.
    latest: u64,
}

impl Sink for Collector {
    #[inline(always)]
    fn event(&mut self, event: &Event) {
        self.event(event);
    }
}

impl Collector {
    /// Creates a collector with these options.
    pub fn new(options: &Options) -> Collector {
        Collector { thread: options.thread, ..Collector::default() }
    }

    /// Counts an event.
    #[inline(always)]
    pub fn event(&mut self, event: &Event) {
        if self.thread.is_some_and(|thread| thread != event.thread) {
            return;
        }
        match event.kind {
            EventKind::Call { function, caller, duration, .. } => {
                self.count(SpanKind::Call, ObjectKind::Other, function, caller, duration, event.time);
            }
            EventKind::Held { .. } | EventKind::Waited { .. } | EventKind::Acquired { .. } => self.lock(event),
            _ => {}
        }
    }

    fn lock(&mut self, event: &Event) {
        match event.kind {
            EventKind::Held { object, site, wait, hold, .. } => {
                if wait > 0 {
                    self.count(SpanKind::Wait, object, site, 0, wait, event.time);
                }
                self.count(SpanKind::Hold, object, site, 0, hold, event.time);
            }
            EventKind::Waited { object, site, wait, .. } | EventKind::Acquired { object, site, wait, .. }
                if wait > 0 =>
            {
                self.count(SpanKind::Wait, object, site, 0, wait, event.time);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn count(&mut self, span_kind: SpanKind, object: ObjectKind, function: u64, caller: u64, span: u64, time: u64) {
        let key = Key { kind: span_kind, object, address: function, caller };
        let slot = ((function ^ caller.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        let index = match self.recent.get(slot) {
            Some(CachedKey(known, index)) if *known == key => *index,
            _ => self.find(key, slot),
        };
        if let Some(counted) = self.counted.get_mut(index) {
            counted.spans.record(span);
            counted.latest = counted.latest.max(time);
        }
    }

    /// Returns the index of a key, and adds an unknown key; `usize::MAX` after an overflow.
    #[cold]
    fn find(&mut self, wanted: Key, slot: usize) -> usize {
        if self.overflowed {
            return usize::MAX;
        }
        let mut key = wanted;
        let known = |indices: &Map<Key, usize>, key: &Key| indices.get(key).copied();
        if let Some(key_count) = &self.total_keys
            && known(&self.indices, &key).is_none()
        {
            // All parts together use no more memory than one collector with all possible keys.
            if self.counted.len() >= MOST || key_count.fetch_add(1, Ordering::Relaxed) >= 2 * MOST {
                *self = Collector { total_keys: self.total_keys.take(), overflowed: true, ..Collector::default() };
                return usize::MAX;
            }
        }
        if self.counted.len() >= MOST && known(&self.indices, &key).is_none() {
            key.caller = 0;
            if self.counted.len() >= 2 * MOST && known(&self.indices, &key).is_none() {
                key.address = 0;
            }
        }
        let index = known(&self.indices, &key).unwrap_or_else(|| {
            self.keys.push(key);
            self.counted.push(KeyCounts { spans: Histogram::default(), latest: 0 });
            self.indices.insert(key, self.counted.len() - 1);
            self.counted.len() - 1
        });
        self.recent.resize(RECENT, CachedKey(wanted, index));
        self.recent[slot] = CachedKey(wanted, index);
        index
    }

    /// Merges the counts of several threads over one trace.
    ///
    /// Returns `None` with so many keys that the result would depend on the distribution of events
    /// to threads.
    fn merged(parts: Vec<Collector>) -> Option<Collector> {
        let mut parts = parts.into_iter();
        let mut all = parts.next()?;
        for part in parts {
            all.overflowed |= part.overflowed;
            for (key, KeyCounts { spans, latest }) in part.keys.into_iter().zip(part.counted) {
                match all.indices.get(&key) {
                    Some(index) => {
                        let counted = &mut all.counted[*index];
                        counted.spans.add(&spans);
                        counted.latest = counted.latest.max(latest);
                    }
                    None => {
                        all.indices.insert(key, all.counted.len());
                        all.keys.push(key);
                        all.counted.push(KeyCounts { spans, latest });
                    }
                }
            }
        }
        let too_many = all.total_keys.take().is_some() && all.counted.len() > MOST;
        (!all.overflowed && !too_many).then_some(all)
    }

    /// Returns the names of functions and of their callers.
    fn calls(&self, symbols: &mut Symbols) -> Vec<(String, String)> {
        let calls = self.keys.iter().zip(&self.counted).filter(|(key, _)| key.kind == SpanKind::Call);
        calls
            .map(|(key, KeyCounts { latest, .. })| {
                let caller =
                    if key.caller == 0 { String::new() } else { symbols.caller(key.caller, *latest).function() };
                (symbols.location(key.address, *latest).function(), caller)
            })
            .collect()
    }

    /// Returns functions that only call another one, with that function. `names` is the result of
    /// [`Collector::calls`].
    fn wrappers(&self, names: &[(String, String)]) -> HashMap<String, String> {
        let counted = self.keys.iter().zip(&self.counted).filter(|(key, _)| key.kind == SpanKind::Call);
        let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
        let mut pairs: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
        for ((_, KeyCounts { spans, .. }), (function, caller)) in counted.zip(names) {
            for sum in [sums.entry(function).or_default(), pairs.entry((caller, function)).or_default()] {
                *sum = (sum.0 + spans.count(), sum.1.saturating_add(spans.total()));
            }
        }
        let mut wrappers: HashMap<String, (u64, String)> = HashMap::new();
        for ((outer, inner), (count, total)) in pairs {
            let (Some(of_outer), of_inner) = (sums.get(outer), sums[inner]) else { continue };
            let near = |a: u64, b: u64| a as f64 >= b as f64 * 0.95;
            let is_all = near(count, of_inner.0)
                && near(count, of_outer.0)
                && near(of_outer.0, count)
                && near(total, of_outer.1);
            if is_all && wraps(outer, inner) && wrappers.get(outer).is_none_or(|(most, _)| *most < total) {
                wrappers.insert(outer.to_string(), (total, inner.to_string()));
            }
        }
        wrappers.into_iter().map(|(outer, (_, inner))| (outer, inner)).collect()
    }

    /// Returns the rows, ranked by the requested percentile.
    ///
    /// Totals are sums of all calls; the function [`rows`] corrects recursive functions.
    pub fn rows(self, symbols: &mut Symbols, options: &Options, resolution: u64) -> Vec<StatsRow> {
        let mut merged: HashMap<(SpanKind, String, Option<String>), Histogram> = HashMap::new();
        for (key, KeyCounts { spans, latest: time }) in self.keys.into_iter().zip(self.counted) {
            let name = match key.kind {
                SpanKind::Call => symbols.location(key.address, time).function(),
                SpanKind::Wait | SpanKind::Hold => {
                    format!("{}, {}", key.object.name(), symbols.site(key.address, time).describe())
                }
            };
            let caller = options.by_caller && key.kind == SpanKind::Call;
            let caller = caller.then(|| match key.caller {
                0 => "unknown".into(),
                caller => symbols.caller(caller, time).describe(),
            });
            merged.entry((key.kind, name, caller)).or_default().add(&spans);
        }
        ranked(merged, options, resolution)
    }
}

/// Removes the rows of wrappers, and counts them in the row of the wrapped function.
fn fold(rows: &mut Vec<StatsRow>, wrappers: &HashMap<String, String>) {
    // A wrapper may be wrapped. After as many steps as there are wrappers, a cycle ends; its
    // functions keep their rows.
    let wrapped = |name: &str| {
        let mut at = name;
        for _ in 0..=wrappers.len() {
            match wrappers.get(at) {
                Some(inner) => at = inner,
                None => return (at != name).then(|| at.to_string()),
            }
        }
        None
    };
    let mut wrapper_counts: HashMap<String, usize> = HashMap::new();
    for function in wrappers.keys().filter_map(|outer| wrapped(outer)) {
        *wrapper_counts.entry(function).or_default() += 1;
    }
    rows.retain(|row| row.sort != SpanKind::Call || wrapped(&row.name).is_none());
    for row in rows.iter_mut().filter(|row| row.sort == SpanKind::Call) {
        row.wrappers = wrapper_counts.get(&row.name).copied().unwrap_or(0);
    }
}

fn ranked(
    merged: HashMap<(SpanKind, String, Option<String>), Histogram>,
    options: &Options,
    resolution: u64,
) -> Vec<StatsRow> {
    let wanted = |(sort, name, caller): &(SpanKind, String, Option<String>)| {
        let contains =
            |filter: &String| name.contains(filter) || caller.as_ref().is_some_and(|caller| caller.contains(filter));
        let _ = sort;
        options.filter.as_ref().is_none_or(contains)
    };
    let rows = merged.into_iter().filter(|(key, _)| wanted(key)).map(|((sort, name, caller), histogram)| {
        let wanted = histogram.percentile(options.percentile);
        StatsRow {
            sort,
            name,
            caller,
            count: histogram.count(),
            total: histogram.total(),
            mean: histogram.mean(),
            p50: histogram.percentile(50.0),
            p99: histogram.percentile(99.0),
            wanted,
            max: histogram.max(),
            unresolved: sort == SpanKind::Call && wanted <= resolution,
            wrappers: 0,
        }
    });
    let mut rows: Vec<StatsRow> = rows.collect();
    rows.sort_by(|a, b| {
        (b.wanted, b.total)
            .cmp(&(a.wanted, a.total))
            .then_with(|| (&a.name, &a.caller, a.sort).cmp(&(&b.name, &b.caller, b.sort)))
    });
    rows
}

/// Returns statistics of the time per request in each function, its calls included.
///
/// A request without the function counts as 0, so percentiles refer to requests, not to recorded
/// calls.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn per_request(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    options: &Options,
    watch: &mut ProgressCallback<'_>,
) -> Result<(Vec<StatsRow>, u64), TraceError> {
    let mut functions: HashMap<u64, (Histogram, u64)> = HashMap::new();
    let weights = RequestWeights::new(trace, selection);
    let mut requests = 0;
    let mut count = |inclusive: Sums<u64>, request: &Request| {
        let weight = weights.weight(request);
        requests += weight;
        for (function, nanos) in inclusive.iter() {
            let function = if functions.len() < MOST || functions.contains_key(&function) { function } else { 0 };
            let (histogram, latest) = functions.entry(function).or_default();
            histogram.record_many(nanos, weight);
            *latest = request.end;
        }
    };
    follow(trace, symbols, selection, watch, |request, history, _| count(history.inclusive(request), request))?;
    let mut merged: HashMap<(SpanKind, String, Option<String>), Histogram> = HashMap::new();
    for (function, (histogram, time)) in functions {
        let name = symbols.location(function, time).function();
        merged.entry((SpanKind::Call, name, None)).or_default().add(&histogram);
    }
    for histogram in merged.values_mut() {
        let absent = requests - histogram.count().min(requests);
        histogram.record_many(0, absent);
    }
    Ok((ranked(merged, options, trace.resolution()), weights.counted(requests)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::event::Extent;

    #[test]
    fn wrappers_of_one_call_are_one_row() {
        let names: HashMap<u64, &str> = HashMap::from([
            (0x100, "a::Router::serve"),
            (0x200, "<a::Timeout as Future>::poll"),
            (0x300, "<a::Logged as Future>::poll"),
            (0x400, "app::dear"),
            (0x500, "app::work"),
        ]);
        let mut collector = Collector::new(&Options::default());
        for turn in 1..=100_u64 {
            for (function, caller, duration) in [
                (0x500, 0x400, 9_000),
                (0x500, 0x400, 9_000),
                (0x400, 0x300, 20_000),
                (0x300, 0x200, 20_100),
                (0x200, 0x100, 20_200),
                (0x100, 0, 60_000),
            ] {
                let what = EventKind::Call { function, caller, duration, extent: Extent::Whole };
                collector.event(&Event { time: turn * 100_000, thread: 0, kind: what });
            }
        }
        let name = |address: &u64| names.get(address).map_or(String::new(), |name| (*name).into());
        let calls: Vec<_> = collector.keys.iter().map(|key| (name(&key.address), name(&key.caller))).collect();
        let wrappers = collector.wrappers(&calls);
        let row = |name: &str| StatsRow {
            sort: SpanKind::Call,
            name: name.into(),
            caller: None,
            count: 1,
            total: 1,
            mean: 1,
            p50: 1,
            p99: 1,
            wanted: 1,
            max: 1,
            unresolved: false,
            wrappers: 0,
        };
        let mut rows: Vec<StatsRow> = names.values().map(|name| row(name)).collect();
        fold(&mut rows, &wrappers);
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        let shown: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.wrappers)).collect();
        assert_eq!(shown, [("a::Router::serve", 0), ("app::dear", 2), ("app::work", 0)]);
        // Two functions that seem to wrap each other keep their rows.
        let circle =
            HashMap::from([("a::poll".to_string(), "b::poll".to_string()), ("b::poll".into(), "a::poll".into())]);
        let mut rows = vec![row("a::poll"), row("b::poll")];
        fold(&mut rows, &circle);
        assert_eq!(rows.len(), 2);
    }
}
