//! Differences between two groups of requests: per cause, the mean time in both, ranked by the
//! difference.
//!
//! A wait also has the holders of the lock and their activities. `tail` divides the requests into
//! groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::breakdown::{Cause, LockWait, add_causes};
use super::follow::TraceHistory;
use super::inclusive::Inclusive;
use super::requests::Request;
use super::sums::Sums;
use super::workers::{self, WorkerActivity, WorkerTimes};
use crate::format::queue::Queue;
use crate::hash::Map;
use crate::span::{format_nanos, percent};
use crate::symbols::Symbols;
use crate::trace::Trace;

/// Limit of distinguished causes.
pub(super) const CAUSES: usize = 1 << 16;
/// Limit of distinguished holders per cause, and of locks per cause.
const HOLDERS: usize = 64;

/// A difference between the slowest and the others. Spans in nanoseconds per request.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Cause of the spent time.
    pub cause: String,
    /// The machine caused it, not a function of the program.
    pub of_machine: bool,
    /// Mean over the slowest.
    pub slow: u64,
    /// Mean over the others.
    pub rest: u64,
    /// Share of the difference in latency, in per cent; 100 at most, also where others spend more
    /// on something else, or several threads work at once.
    pub explains: f64,
    /// Share of the slowest with this cause, in per cent.
    pub in_slow: f64,
    /// Share of the others with this cause, in per cent.
    pub in_rest: f64,
    /// For a wait: the number of different objects.
    pub objects: usize,
    /// For a wait: the holders, the longest first.
    pub holders: Vec<Holder>,
    /// For time in which requests were ready, but not polled: what their workers did, the longest
    /// first.
    pub workers: Vec<WorkerActivity>,
    /// The result as a sentence or two.
    pub text: String,
}

/// Holder of a lock for which the slowest waited.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// The thread.
    pub thread: String,
    /// The function that took the lock, and the line.
    pub place: String,
    /// Share of the waiting, in per cent.
    pub share: f64,
    /// The holder's activities: share of the time in per cent, the largest first.
    pub doing: Vec<(String, f64)>,
}

/// Sums of the slowest requests, or of the others.
#[derive(Default)]
pub(super) struct Group {
    pub(super) requests: u64,
    latency: u128,
    causes: Map<Cause, Sum>,
    pub(super) inclusive: Inclusive,
    pub(super) incomplete: u64,
    /// Requests with a call. After [`Group::compared`]: the requests to which those that call a
    /// function are compared.
    pub(super) with_calls: u64,
    /// Factor by which times on a CPU are multiplied.
    pub(super) cpu_scale: f64,
    /// Time in no recorded call, and in functions themselves.
    unrecorded: u128,
    in_functions: u128,
}

#[derive(Default)]
struct Sum {
    nanos: u64,
    requests: u64,
    time: u64,
}

/// Activities of the holders for one kind of wait.
#[derive(Default)]
pub(super) struct Blame {
    waited: u64,
    locks: HashSet<u64>,
    holders: HashMap<(u32, u64), HolderTime>,
}

#[derive(Default)]
struct HolderTime {
    nanos: u64,
    time: u64,
    causes: Map<Cause, u64>,
}

/// Returns the grouping key of a cause: waits at the same address are one cause for all objects.
pub(super) fn group_key(cause: Cause) -> Cause {
    match cause {
        Cause::Wait { object, site, .. } if site != 0 => Cause::Wait { object, site, lock: 0 },
        other => other,
    }
}

impl Group {
    /// Adds a request that stands for `weight` requests.
    pub(super) fn add(&mut self, request: &Request, weight: u64, causes: &Sums<Cause>) {
        self.requests += weight;
        self.latency += u128::from(request.latency()) * u128::from(weight);
        let mut has_calls = false;
        let mut own = Sums::default();
        causes.iter().for_each(|(cause, nanos)| own.add(group_key(cause), nanos));
        for (cause, nanos) in own.iter() {
            let nanos = nanos.saturating_mul(weight);
            match cause {
                Cause::Unrecorded => self.unrecorded += u128::from(nanos),
                Cause::Function { .. } => self.in_functions += u128::from(nanos),
                _ => {}
            }
            has_calls |= matches!(cause, Cause::Function { function } | Cause::Blocked { function } if function != 0);
            let full = self.causes.len() >= CAUSES && !self.causes.contains_key(&cause);
            let sum = self.causes.entry(if full { Cause::Unrecorded } else { cause }).or_default();
            sum.nanos = sum.nanos.saturating_add(nanos);
            sum.requests += weight;
            sum.time = request.end;
        }
        self.with_calls += if has_calls { weight } else { 0 };
    }

    /// Returns whether the group's times on a CPU can be estimated: a sample shows a function.
    pub(super) fn has_functions(&self) -> bool {
        self.in_functions > 0
    }

    /// Prepares the group for comparison. `sampled`: a sample falls only into some short requests.
    /// If times are then `estimated`, the functions of these stand for those of the others.
    pub(super) fn compared(mut self, sampled: bool, estimated: bool) -> Group {
        self.cpu_scale = 1.0;
        if !sampled {
            self.with_calls = self.requests;
        } else if estimated {
            self.cpu_scale = 1.0 + self.unrecorded as f64 / self.in_functions as f64;
            self.causes.remove(&Cause::Unrecorded);
        }
        self
    }

    /// Returns the estimated time of a cause, and the requests among which it was looked for.
    fn estimate(&self, cause: Cause, nanos: u64) -> (u64, u64) {
        match cause {
            Cause::Function { .. } => ((nanos as f64 * self.cpu_scale) as u64, self.with_calls),
            _ => (nanos, self.requests),
        }
    }

    /// Returns the mean time of a cause per request.
    pub(super) fn mean_of(&self, cause: Cause) -> u64 {
        self.causes.get(&cause).map_or(0, |sum| sum.nanos / self.requests.max(1))
    }

    pub(super) fn mean(&self) -> u64 {
        (self.latency / u128::from(self.requests.max(1))) as u64
    }
}

impl Blame {
    /// Adds a wait, and the activities of the lock's holders meanwhile.
    pub(super) fn add(&mut self, wait: &LockWait, history: &TraceHistory) {
        self.waited += wait.end.saturating_sub(wait.start);
        if self.locks.len() < HOLDERS {
            self.locks.insert(wait.lock);
        }
        for hold in history.holders(wait.lock, wait.thread, wait.start, wait.end) {
            let key = (hold.thread, hold.site);
            if self.holders.len() >= HOLDERS && !self.holders.contains_key(&key) {
                continue;
            }
            let holder = self.holders.entry(key).or_default();
            holder.nanos += hold.end - hold.start;
            holder.time = hold.end;
            add_causes(history.between(hold.thread, hold.start, hold.end), hold.start, hold.end, &mut holder.causes);
        }
    }
}

/// Returns the differences between both groups, the largest first.
pub(super) fn findings(
    trace: &Trace,
    symbols: &mut Symbols,
    slow: &Group,
    rest: &Group,
    blames: Map<Cause, Blame>,
    worker_times: WorkerTimes,
) -> Vec<Finding> {
    /// Both groups' sums of one name.
    #[derive(Default)]
    struct GroupPair {
        slow: (u64, u64),
        rest: (u64, u64),
        /// Requests among which the cause was looked for.
        of_slow: u64,
        of_rest: u64,
        blame: Vec<Blame>,
    }
    let mut names: BTreeMap<String, GroupPair> = BTreeMap::new();
    let mut blames = blames;
    for (group, is_slow) in [(slow, true), (rest, false)] {
        for (cause, sum) in &group.causes {
            let pair = names.entry(cause.describe(symbols, sum.time)).or_default();
            let (_, of_slow) = slow.estimate(*cause, 0);
            let (_, of_rest) = rest.estimate(*cause, 0);
            (pair.of_slow, pair.of_rest) = (of_slow, of_rest);
            let side = if is_slow { &mut pair.slow } else { &mut pair.rest };
            side.0 += group.estimate(*cause, sum.nanos).0;
            side.1 += sum.requests;
            if is_slow {
                pair.blame.extend(blames.remove(cause));
            }
        }
    }
    let descheduled = Cause::Descheduled.describe(symbols, 0);
    let stopped = Cause::Stopped.describe(symbols, 0);
    let ready = Cause::Queued { queue: Queue::Ready.to_event() }.describe(symbols, 0);
    let mut activities = worker_times.activities(trace, symbols);
    let difference = slow.mean() as f64 - rest.mean() as f64;
    let share = |part: u64, whole: u64| (part as f64 * 100.0 / whole.max(1) as f64).min(100.0);
    let mut findings: Vec<Finding> = Vec::new();
    for (cause, pair) in names {
        let (slow_mean, rest_mean) = (pair.slow.0 / slow.requests.max(1), pair.rest.0 / rest.requests.max(1));
        if slow_mean <= rest_mean {
            continue;
        }
        let explains =
            if difference > 0.0 { ((slow_mean - rest_mean) as f64 * 100.0 / difference).min(100.0) } else { 0.0 };
        let (holders, objects) = holders(trace, symbols, pair.blame);
        let mut finding = Finding {
            of_machine: cause == descheduled || cause == stopped,
            workers: if cause == ready { std::mem::take(&mut activities) } else { Vec::new() },
            cause,
            slow: slow_mean,
            rest: rest_mean,
            explains,
            in_slow: share(pair.slow.1, pair.of_slow),
            in_rest: share(pair.rest.1, pair.of_rest),
            objects,
            holders,
            text: String::new(),
        };
        finding.text = describe(&finding);
        findings.push(finding);
    }
    findings.sort_by_key(|finding| Reverse(finding.slow - finding.rest));
    findings
}

fn holders(trace: &Trace, symbols: &mut Symbols, blames: Vec<Blame>) -> (Vec<Holder>, usize) {
    let waited: u64 = blames.iter().map(|blame| blame.waited).sum();
    let objects = blames.iter().map(|blame| blame.locks.len()).sum();
    let mut merged: BTreeMap<(String, String), (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    for ((thread, site), holder) in blames.into_iter().flat_map(|blame| blame.holders) {
        let place = if site == 0 { "an unknown place".into() } else { symbols.site(site, holder.time).describe() };
        let (nanos, doing) = merged.entry((trace.thread_name(thread), place)).or_default();
        *nanos += holder.nanos;
        for (cause, nanos) in holder.causes {
            *doing.entry(cause.describe(symbols, holder.time)).or_default() += nanos;
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

fn describe(finding: &Finding) -> String {
    let mut text = format!(
        "{}: {} per request in the slowest, {} in the others",
        capital(&finding.cause),
        format_nanos(finding.slow),
        format_nanos(finding.rest)
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
    text + &workers::describe(&finding.workers)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
