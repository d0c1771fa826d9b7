//! Differences between the slowest requests and the others: per cause, the mean time in both groups, ranked by the
//! difference. For waits, the holder of the lock meanwhile and its activity.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::breakdown::{Cause, doing};
use super::culprit::{Culprit, Groups, Inclusive, Tree, culprit};
use super::follow::{Follower, Memory};
use super::requests::Request;
use super::select::{Selection, Selector};
use super::sums::Sums;
use crate::hash::Map;
use crate::histogram::Histogram;
use crate::span::{percent, show};
use crate::symbols::Symbols;
use crate::trace::{Trace, TraceError, Watch};

/// Causes that are told apart.
const CAUSES: usize = 1 << 16;
/// Holders per cause, locks per cause that are told apart.
const HOLDERS: usize = 64;

/// A difference between the slowest and the others. Spans in nanoseconds per request.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Cause for which time was spent.
    pub cause: String,
    /// Mean over the slowest.
    pub slow: u64,
    /// Mean over the others.
    pub rest: u64,
    /// Share of the difference in latency that it explains, in per cent.
    pub explains: f64,
    /// How many of the slowest have it, in per cent.
    pub in_slow: f64,
    /// How many of the others have it, in per cent.
    pub in_rest: f64,
    /// Of a wait: how many different objects.
    pub objects: usize,
    /// For a wait: the holders, the longest first.
    pub holders: Vec<Holder>,
    /// All that in a sentence or two.
    pub text: String,
}

/// Holder of the lock that the slowest waited for.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// The thread.
    pub thread: String,
    /// The function that took the lock, and the line.
    pub place: String,
    /// Share of the waiting, in per cent.
    pub share: f64,
    /// Activities of the holder meanwhile: share of the time in per cent, the largest first.
    pub doing: Vec<(String, f64)>,
}

/// The comparison. Spans in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tail {
    /// All requests.
    pub requests: u64,
    /// Of those, the slowest.
    pub slow: u64,
    /// From which latency on a request is one of the slowest.
    pub threshold: u64,
    /// Mean latency of the slowest.
    pub slow_mean: u64,
    /// Mean latency of the others.
    pub rest_mean: u64,
    /// Half of all are shorter.
    pub p50: u64,
    /// 99 % of all are shorter.
    pub p99: u64,
    /// The longest of all.
    pub max: u64,
    /// The function behind most of the difference, with all that it calls.
    pub culprit: Option<Culprit>,
    /// Differences, the largest first.
    pub findings: Vec<Finding>,
    /// Slow requests of which something had been forgotten.
    pub incomplete: u64,
    /// Begun and not ended.
    pub unfinished: u64,
}

#[derive(Default)]
struct Group {
    requests: u64,
    latency: u128,
    causes: Map<Cause, Sum>,
    inclusive: Inclusive,
    incomplete: u64,
}

#[derive(Default)]
struct Sum {
    nanos: u64,
    requests: u64,
    time: u64,
}

/// Activities of the holders of one kind of wait.
#[derive(Default)]
struct Blame {
    waited: u64,
    locks: HashSet<u64>,
    holders: HashMap<(u32, u64), Held>,
}

#[derive(Default)]
struct Held {
    nanos: u64,
    time: u64,
    doing: Map<Cause, u64>,
}

/// Waits at the same place are one cause, whichever object it was.
fn grouped(cause: Cause) -> Cause {
    match cause {
        Cause::Wait { object, site, .. } if site != 0 => Cause::Wait { object, site, lock: 0 },
        other => other,
    }
}

impl Group {
    fn add(&mut self, request: &Request, causes: &Sums<Cause>) {
        self.requests += 1;
        self.latency += u128::from(request.latency());
        let mut own = Sums::default();
        causes.iter().for_each(|(cause, nanos)| own.add(grouped(cause), nanos));
        for (cause, nanos) in own.iter() {
            let full = self.causes.len() >= CAUSES && !self.causes.contains_key(&cause);
            let sum = self.causes.entry(if full { Cause::Unrecorded } else { cause }).or_default();
            sum.nanos = sum.nanos.saturating_add(nanos);
            sum.requests += 1;
            sum.time = request.end;
        }
    }

    fn mean(&self) -> u64 {
        (self.latency / u128::from(self.requests.max(1))) as u64
    }
}

/// Compares the slowest requests with the others; `share` is how many count as the slowest, such as 0.01.
///
/// # Errors
/// When the trace can't be read any more, or the watcher stops it.
pub fn tail(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    share: f64,
    watch: &mut Watch<'_>,
) -> Result<Tail, TraceError> {
    let mut all = compare(trace, symbols, selection, share, |_| 0, watch)?;
    Ok(all.remove(&0).unwrap_or_default())
}

/// Labels that are told apart; the requests of all others are one group.
const LABELS: usize = 64;

/// Like [`tail`] for the requests of each label by themselves: what makes the slowest with this label slower than the others with it. The
/// label with the slowest requests first; requests without one have an empty label.
///
/// # Errors
/// See there.
pub fn by_label(
    trace: &Trace,
    symbols: &mut Symbols,
    selection: &Selection,
    share: f64,
    watch: &mut Watch<'_>,
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

/// Comparison under way.
#[derive(Default)]
struct Comparison {
    slow: Group,
    rest: Group,
    blames: Map<Cause, Blame>,
    tree: Tree,
}

impl Comparison {
    fn take(&mut self, request: &Request, memory: &Memory, threshold: u64) {
        let breakdown = memory.breakdown(request);
        let inclusive = memory.inclusive(request);
        if request.latency() < threshold {
            self.rest.add(request, &breakdown.causes);
            self.rest.inclusive.add(&inclusive, request.end);
            return;
        }
        self.slow.add(request, &breakdown.causes);
        self.slow.inclusive.add(&inclusive, request.end);
        self.slow.incomplete += u64::from(breakdown.incomplete);
        let tree = &mut self.tree;
        memory.stacks(request, |stack, from, to| tree.add(stack, to - from, request.end));
        for wait in &breakdown.waits {
            let cause = grouped(Cause::Wait { object: wait.object, site: wait.site, lock: wait.lock });
            if self.blames.len() < CAUSES || self.blames.contains_key(&cause) {
                blame(self.blames.entry(cause).or_default(), wait, memory);
            }
        }
    }

    fn finish(self, trace: &Trace, symbols: &mut Symbols, latencies: &Histogram, threshold: u64) -> Tail {
        let Comparison { slow, rest, blames, tree } = self;
        let groups = Groups { slow: (slow.requests, slow.mean()), rest: (rest.requests, rest.mean()) };
        Tail {
            requests: slow.requests + rest.requests,
            slow: slow.requests,
            threshold,
            slow_mean: slow.mean(),
            rest_mean: rest.mean(),
            p50: latencies.percentile(50.0),
            p99: latencies.percentile(99.0),
            max: latencies.max(),
            culprit: culprit(symbols, &slow.inclusive, &rest.inclusive, &groups, &tree),
            findings: findings(trace, symbols, &slow, &rest, blames),
            incomplete: slow.incomplete,
            unfinished: 0,
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
    watch: &mut Watch<'_>,
) -> Result<BTreeMap<u32, Tail>, TraceError> {
    let mut latencies: BTreeMap<u32, Histogram> = BTreeMap::new();
    let mut selector = Selector::new(selection);
    trace.in_order(
        watch,
        |event| Selector::concerns(selection, event),
        |event| {
            selector.event(event, symbols, |request| {
                let of = group(&request);
                let of = if latencies.len() < LABELS || latencies.contains_key(&of) { of } else { u32::MAX };
                latencies.entry(of).or_default().record(request.latency());
            });
        },
    )?;
    let thresholds: BTreeMap<u32, u64> =
        latencies.iter().map(|(of, latencies)| (*of, latencies.limit_of_largest(share))).collect();
    let mut all: BTreeMap<u32, Comparison> = BTreeMap::new();
    let mut take = |request: &Request, memory: &Memory| {
        let of = group(request);
        let of = if thresholds.contains_key(&of) { of } else { u32::MAX };
        let threshold = thresholds.get(&of).copied().unwrap_or_default();
        all.entry(of).or_default().take(request, memory, threshold);
    };
    let mut follower = Follower::new(trace, selection);
    trace.in_order(
        watch,
        |_| true,
        |event| follower.event(event, symbols, |request, memory, _| take(request, memory)),
    )?;
    let unfinished = follower.finish(symbols, |request, memory, _| take(request, memory));
    let mut tails: BTreeMap<u32, Tail> = BTreeMap::new();
    for (of, comparison) in all {
        let (latencies, threshold) = (&latencies[&of], thresholds[&of]);
        let tail = comparison.finish(trace, symbols, latencies, threshold);
        tails.insert(of, Tail { unfinished, ..tail });
    }
    if tails.is_empty() && unfinished > 0 {
        tails.insert(0, Tail { unfinished, ..Tail::default() });
    }
    Ok(tails)
}

fn blame(blame: &mut Blame, wait: &super::breakdown::LockWait, memory: &Memory) {
    blame.waited += wait.end.saturating_sub(wait.start);
    if blame.locks.len() < HOLDERS {
        blame.locks.insert(wait.lock);
    }
    for hold in memory.holders(wait.lock, wait.thread, wait.start, wait.end) {
        let key = (hold.thread, hold.site);
        if blame.holders.len() >= HOLDERS && !blame.holders.contains_key(&key) {
            continue;
        }
        let held = blame.holders.entry(key).or_default();
        held.nanos += hold.end - hold.start;
        held.time = hold.end;
        doing(memory.between(hold.thread, hold.start, hold.end), hold.start, hold.end, &mut held.doing);
    }
}

fn findings(
    trace: &Trace,
    symbols: &mut Symbols,
    slow: &Group,
    rest: &Group,
    blames: Map<Cause, Blame>,
) -> Vec<Finding> {
    /// Both groups' sums of one name.
    #[derive(Default)]
    struct Both {
        slow: (u64, u64),
        rest: (u64, u64),
        blame: Vec<Blame>,
    }
    let mut names: BTreeMap<String, Both> = BTreeMap::new();
    let mut blames = blames;
    for (group, is_slow) in [(slow, true), (rest, false)] {
        for (cause, sum) in &group.causes {
            let both = names.entry(cause.words(symbols, sum.time)).or_default();
            let side = if is_slow { &mut both.slow } else { &mut both.rest };
            side.0 += sum.nanos;
            side.1 += sum.requests;
            if is_slow {
                both.blame.extend(blames.remove(cause));
            }
        }
    }
    let difference = slow.mean() as f64 - rest.mean() as f64;
    let share = |part: u64, whole: u64| (part as f64 * 100.0 / whole.max(1) as f64).min(100.0);
    let mut findings: Vec<Finding> = Vec::new();
    for (cause, both) in names {
        let (slow_mean, rest_mean) = (both.slow.0 / slow.requests.max(1), both.rest.0 / rest.requests.max(1));
        if slow_mean <= rest_mean {
            continue;
        }
        let explains = if difference > 0.0 { (slow_mean - rest_mean) as f64 * 100.0 / difference } else { 0.0 };
        let (holders, objects) = holders(trace, symbols, both.blame);
        let mut finding = Finding {
            cause,
            slow: slow_mean,
            rest: rest_mean,
            explains,
            in_slow: share(both.slow.1, slow.requests),
            in_rest: share(both.rest.1, rest.requests),
            objects,
            holders,
            text: String::new(),
        };
        finding.text = words(&finding);
        findings.push(finding);
    }
    findings.sort_by_key(|finding| Reverse(finding.slow - finding.rest));
    findings
}

fn holders(trace: &Trace, symbols: &mut Symbols, blames: Vec<Blame>) -> (Vec<Holder>, usize) {
    let waited: u64 = blames.iter().map(|blame| blame.waited).sum();
    let objects = blames.iter().map(|blame| blame.locks.len()).sum();
    let mut merged: BTreeMap<(String, String), (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    for ((thread, site), held) in blames.into_iter().flat_map(|blame| blame.holders) {
        let place = if site == 0 { "an unknown place".into() } else { symbols.site(site, held.time).words() };
        let (nanos, doing) = merged.entry((trace.thread_name(thread), place)).or_default();
        *nanos += held.nanos;
        for (cause, nanos) in held.doing {
            *doing.entry(cause.words(symbols, held.time)).or_default() += nanos;
        }
    }
    let mut holders: Vec<(u64, Holder)> = merged
        .into_iter()
        .map(|((thread, place), (nanos, doing))| {
            let of = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
            let mut doing: Vec<(String, f64)> = doing.into_iter().map(|(name, part)| (name, of(part, nanos))).collect();
            doing.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            doing.truncate(5);
            (nanos, Holder { thread, place, share: of(nanos, waited).min(100.0), doing })
        })
        .collect();
    holders.sort_by_key(|(nanos, _)| Reverse(*nanos));
    (holders.into_iter().map(|(_, holder)| holder).take(5).collect(), objects)
}

fn words(finding: &Finding) -> String {
    let mut text = format!(
        "{}: {} per request in the slowest, {} in the others",
        capital(&finding.cause),
        show(finding.slow),
        show(finding.rest)
    );
    if finding.in_rest < finding.in_slow * 0.9 {
        let of = |share: f64| percent((share * 10.0) as u64, 1000);
        text += &format!(" (seen in {} of the slowest and {} of the others)", of(finding.in_slow), of(finding.in_rest));
    }
    text += ".";
    if finding.objects > 1 {
        text += &format!(" {} different objects.", finding.objects);
    }
    for holder in finding.holders.iter().take(2).filter(|holder| holder.share >= 1.0) {
        text +=
            &format!(" For {:.0} % of that thread {} held it, taken in {}", holder.share, holder.thread, holder.place);
        let doing =
            holder.doing.iter().filter(|(name, share)| *share >= 5.0 && name != "outside recorded calls").take(2);
        let doing: Vec<String> = doing.map(|(name, share)| format!("{share:.0} % {name}")).collect();
        text += &if doing.is_empty() { ".".into() } else { format!("; meanwhile it was {}.", doing.join(", ")) };
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
