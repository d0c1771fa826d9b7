//! Comparison of the slowest requests with the others, over all or per label.
//!
//! `findings` describes the differences by cause; `culprit` finds the function behind most of the
//! difference.

use std::collections::BTreeMap;

use serde::Serialize;

use super::breakdown::Cause;
use super::culprit::{Culprit, Tree, culprit};
use super::findings::{Blame, CAUSES, Group, findings, group_key};
pub use super::findings::{Finding, Holder};
use super::follow::{TraceHistory, follow};
use super::requests::Request;
use super::select::{Selection, Selector};
use super::weights::RequestWeights;
use super::workers::WorkerTimes;
use crate::format::meta::Engine;
use crate::hash::Map;
use crate::histogram::Histogram;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace, TraceError};

/// The comparison. Spans in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tail {
    /// Number of requests, also of those that others in the trace stand for.
    pub requests: u64,
    /// Number of the slowest among them.
    pub slow: u64,
    /// Latency from which a request is one of the slowest.
    pub threshold: u64,
    /// Mean latency of the slowest.
    pub slow_mean: u64,
    /// Mean latency of the others.
    pub rest_mean: u64,
    /// Median of all latencies.
    pub p50: u64,
    /// 99th percentile of all latencies.
    pub p99: u64,
    /// Greatest latency.
    pub max: u64,
    /// The function behind most of the difference, its calls included.
    pub culprit: Option<Culprit>,
    /// Differences, the largest first.
    pub findings: Vec<Finding>,
    /// Number of slow requests with partly discarded history or spans.
    pub incomplete: u64,
    /// Number of requests without an end.
    pub unfinished: u64,
    /// The trace holds all slow requests, but only some of the others, which stand for all.
    pub weighted: bool,
}

/// Compares the slowest requests with the others; `share` is the share of the slowest, such as
/// 0.01. A trace that has all of fewer slow requests only is asked about those.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn tail(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    share: f64,
    watch: &mut ProgressCallback<'_>,
) -> Result<Tail, TraceError> {
    let mut all = compare(trace, symbols, selection, share, |_| 0, watch)?;
    let mut tail = all.remove(&0).unwrap_or_default();
    tail.requests = RequestWeights::new(trace, selection).counted(tail.requests);
    Ok(tail)
}

/// Compares the requests for which `is_slow` is true with those for which it is false; leaves out
/// others.
///
/// # Errors
/// See [`tail`].
pub fn compare_groups(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    is_slow: impl Fn(&Request) -> Option<bool>,
    watch: &mut ProgressCallback<'_>,
) -> Result<Tail, TraceError> {
    let (mut comparison, mut latencies, mut threshold) = (Comparison::default(), Histogram::default(), u64::MAX);
    let mut take = |request: &Request, history: &TraceHistory| {
        let Some(is_slow) = is_slow(request) else { return };
        latencies.record(request.latency());
        if is_slow {
            threshold = threshold.min(request.latency());
        }
        comparison.take(request, 1, history, is_slow);
    };
    let unfinished = follow(trace, symbols, selection, watch, |request, history, _| take(request, history))?;
    Ok(Tail { unfinished, ..comparison.finish(trace, symbols, &latencies, threshold) })
}

/// Limit of distinguished labels; the requests of all others form one group.
const LABELS: usize = 64;

/// Compares like [`tail`], separately for the requests of each label.
///
/// The label with the slowest requests comes first; requests without a label have an empty one.
///
/// # Errors
/// See [`tail`].
pub fn by_label(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    share: f64,
    watch: &mut ProgressCallback<'_>,
) -> Result<Vec<(String, Tail)>, TraceError> {
    let all = compare(trace, symbols, selection, share, |request| request.label, watch)?;
    let text = |label: u32| match trace.label(label) {
        Some(text) => text.to_string(),
        None if label == u32::MAX => "(other labels)".into(),
        None => String::new(),
    };
    let mut all: Vec<(String, Tail)> = all.into_iter().map(|(label, tail)| (text(label), tail)).collect();
    all.sort_by(|a, b| (b.1.p99, b.1.max, &a.0).cmp(&(a.1.p99, a.1.max, &b.0)));
    Ok(all)
}

/// A comparison in progress.
#[derive(Default)]
struct Comparison {
    slow: Group,
    rest: Group,
    blames: Map<Cause, Blame>,
    workers: WorkerTimes,
    tree: Tree,
}

impl Comparison {
    fn take(&mut self, request: &Request, weight: u64, history: &TraceHistory, is_slow: bool) {
        let breakdown = history.breakdown(request);
        let inclusive = history.inclusive_by_state(request);
        if !is_slow {
            self.rest.add(request, weight, &breakdown.causes);
            self.rest.inclusive.add(&inclusive, weight, request.end);
            return;
        }
        self.slow.add(request, weight, &breakdown.causes);
        self.slow.inclusive.add(&inclusive, weight, request.end);
        self.slow.incomplete += u64::from(breakdown.incomplete);
        self.workers.add(request, history);
        let tree = &mut self.tree;
        history.stacks(request, |stack, from, to| {
            let nanos = (to - from).saturating_mul(weight);
            tree.add(stack, nanos, request.end, |function| history.calls_wait(function));
        });
        for wait in &breakdown.waits {
            let cause = group_key(Cause::Wait { object: wait.object, site: wait.site, lock: wait.lock });
            if self.blames.len() < CAUSES || self.blames.contains_key(&cause) {
                self.blames.entry(cause).or_default().add(wait, history);
            }
        }
    }

    fn finish(self, trace: &Trace, symbols: &mut Symbols, latencies: &Histogram, threshold: u64) -> Tail {
        let Comparison { slow, rest, blames, workers, tree } = self;
        let sampled = trace.header().engine == Engine::Samples;
        // Both or none: what one group has in functions, the other would have outside them.
        let estimated = slow.has_functions() && rest.has_functions();
        let (slow, rest) = (slow.compared(sampled, estimated), rest.compared(sampled, estimated));
        Tail {
            requests: slow.requests + rest.requests,
            slow: slow.requests,
            threshold,
            slow_mean: slow.mean(),
            rest_mean: rest.mean(),
            p50: latencies.percentile(50.0),
            p99: latencies.percentile(99.0),
            max: latencies.max(),
            culprit: culprit(symbols, &slow, &rest, sampled, &tree),
            findings: findings(trace, symbols, &slow, &rest, blames, workers),
            incomplete: slow.incomplete,
            unfinished: 0,
            weighted: false,
        }
    }
}

/// Compares within each group of requests.
fn compare(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    share: f64,
    group: impl Fn(&Request) -> u32,
    watch: &mut ProgressCallback<'_>,
) -> Result<BTreeMap<u32, Tail>, TraceError> {
    let weights = RequestWeights::new(trace, selection);
    // Latencies, and how many requests are in the trace because they took long.
    let mut latencies: BTreeMap<u32, (Histogram, u64)> = BTreeMap::new();
    Selector::all(trace, selection, watch, |request| {
        let key = group(&request);
        let key = if latencies.len() < LABELS || latencies.contains_key(&key) { key } else { u32::MAX };
        let (latencies, slow) = latencies.entry(key).or_default();
        latencies.record_many(request.latency(), weights.weight(&request));
        *slow += u64::from(weights.is_slow(&request));
    })?;
    let threshold = |latencies: &Histogram, slow: u64| {
        // Of the requests below these the trace has too few to tell what they have in common.
        let recorded = if slow > 0 { slow as f64 / latencies.count() as f64 } else { 1.0 };
        latencies.top_threshold(share.min(recorded))
    };
    let thresholds: BTreeMap<u32, u64> =
        latencies.iter().map(|(key, (latencies, slow))| (*key, threshold(latencies, *slow))).collect();
    let mut all: BTreeMap<u32, Comparison> = BTreeMap::new();
    let mut take = |request: &Request, history: &TraceHistory| {
        let key = group(request);
        let key = if thresholds.contains_key(&key) { key } else { u32::MAX };
        let threshold = thresholds.get(&key).copied().unwrap_or_default();
        let is_slow = request.latency() >= threshold;
        all.entry(key).or_default().take(request, weights.weight(request), history, is_slow);
    };
    let unfinished = follow(trace, symbols, selection, watch, |request, history, _| take(request, history))?;
    let weighted = weights.are_uneven();
    let mut tails: BTreeMap<u32, Tail> = BTreeMap::new();
    for (key, comparison) in all {
        let (latencies, threshold) = (&latencies[&key].0, thresholds[&key]);
        let tail = comparison.finish(trace, symbols, latencies, threshold);
        tails.insert(key, Tail { unfinished, weighted, ..tail });
    }
    if tails.is_empty() && unfinished > 0 {
        tails.insert(0, Tail { unfinished, ..Tail::default() });
    }
    Ok(tails)
}
