//! Keeps only what surrounds slow requests: a bounded ring in memory, of which the rest is dropped.
//!
//! Some ordinary requests are kept as well, to compare the slow ones with. Does not contain the
//! conversion of records.

use std::collections::{HashMap, HashSet, VecDeque};

use leeward_profile::format::request_totals::RequestTotals;

/// What is kept around a slow request, in nanoseconds before its start and after its end.
const AROUND: u64 = 5_000_000;
/// Ordinary requests that are kept per second, on average.
const ORDINARY: f64 = 20.0;
/// One in so many ordinary requests is kept until the first count.
const FIRST: f64 = 20.0;
/// Nanoseconds of which the percentile is taken: twice as many at most.
const RECENT: u64 = 30_000_000_000;
/// Limit of requests whose begin is remembered.
const OPEN: usize = 1 << 16;

/// Which requests are slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowRequests {
    /// So many per cent of all requests, the slowest.
    Percent(f64),
    /// Requests that take this many nanoseconds or longer.
    Longer(u64),
}

/// Which requests are kept, with what surrounds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeepSlow {
    /// The slow ones.
    pub slow: SlowRequests,
    /// Limit in bytes of the ring.
    pub memory: usize,
}

/// Items in the order of time, and the spans of time that are kept.
#[derive(Debug)]
pub(super) struct KeepRing<T> {
    config: KeepSlow,
    ring: VecDeque<(u64, usize, T)>,
    bytes: usize,
    /// Sorted spans that don't touch each other, the earliest first.
    spans: VecDeque<(u64, u64)>,
    /// From this latency on a request is slow.
    threshold: u64,
    /// Of the requests that are not slow, the source reports one in so many, and of those one in so
    /// many is kept.
    one_in: f64,
    ordinary: f64,
    /// Sum of the shares of requests that were not kept, and of all since the last count.
    share: f64,
    candidates: f64,
    /// Requests that the source reported because they took long, and others since the last count.
    slow: u64,
    sampled: u64,
    /// Time, requests and slow ones among them at the last count.
    before: (u64, u64, u64),
    /// Latencies up to an earlier time, and to a later one.
    past: [RequestTotals; 2],
    open: HashMap<u64, u64>,
    /// Requests that are kept, until their end leaves the ring.
    kept: HashSet<u64>,
}

impl<T> KeepRing<T> {
    pub(super) fn new(config: KeepSlow) -> KeepRing<T> {
        let threshold = match config.slow {
            SlowRequests::Percent(_) => u64::MAX,
            SlowRequests::Longer(latency) => latency,
        };
        KeepRing {
            config,
            ring: VecDeque::new(),
            bytes: 0,
            spans: VecDeque::new(),
            threshold,
            one_in: 1.0,
            ordinary: FIRST,
            share: 1.0,
            candidates: 0.0,
            slow: 0,
            sampled: 0,
            before: (0, 0, 0),
            past: Default::default(),
            open: HashMap::new(),
            kept: HashSet::new(),
        }
    }

    /// From this latency on, requests are slow.
    pub(super) fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Adds an item of about this many bytes. Times must not decrease.
    pub(super) fn push(&mut self, time: u64, bytes: usize, item: T) {
        self.bytes += bytes;
        self.ring.push_back((time, bytes, item));
    }

    /// A request began.
    pub(super) fn started(&mut self, id: u64, time: u64) {
        if self.open.len() < OPEN {
            self.open.entry(id).or_insert(time);
        }
    }

    /// Returns when a request began.
    pub(super) fn ended(&mut self, id: u64) -> Option<u64> {
        self.open.remove(&id)
    }

    /// A request ended; the source reported it because it took long, or as one of so many. Returns
    /// whether it is kept.
    pub(super) fn request(&mut self, id: u64, start: u64, end: u64, is_slow: bool) -> bool {
        let latency = end.saturating_sub(start);
        self.slow += u64::from(is_slow);
        self.sampled += u64::from(!is_slow);
        if latency >= self.threshold {
            self.keep(start.saturating_sub(AROUND), end.saturating_add(AROUND));
            self.kept.insert(id);
            return true;
        }
        // Of those that the source reported as slow it reported all, and of the others some: each
        // is kept as likely.
        let share = if is_slow { 1.0 / self.one_in } else { 1.0 };
        self.candidates += share;
        self.share += share / self.ordinary;
        if self.share < 1.0 {
            return false;
        }
        self.share = 0.0;
        self.keep(start, end);
        self.kept.insert(id);
        true
    }

    /// Returns whether a request is kept.
    pub(super) fn is_kept(&self, id: u64) -> bool {
        self.kept.contains(&id)
    }

    /// The end of a request has left the ring.
    pub(super) fn forget(&mut self, id: u64) {
        self.kept.remove(&id);
    }

    /// Returns the next item that leaves the ring, and whether it is kept. Items stay until `now`
    /// is so far on that no span can begin at them, or the ring is full.
    pub(super) fn pop(&mut self, until: u64) -> Option<(u64, bool, T)> {
        let (time, ..) = self.ring.front()?;
        if *time > until && self.bytes <= self.config.memory {
            return None;
        }
        let (time, bytes, item) = self.ring.pop_front()?;
        self.bytes -= bytes;
        while self.spans.front().is_some_and(|(_, end)| *end < time) {
            self.spans.pop_front();
        }
        let is_kept = self.spans.front().is_some_and(|(start, _)| *start <= time);
        Some((time, is_kept, item))
    }

    /// Adapts what is slow and how many others are kept.
    pub(super) fn count(&mut self, totals: &RequestTotals) {
        let (time, seen, slow) = self.before;
        self.before = (totals.time, totals.seen, self.slow);
        let seconds = totals.time.saturating_sub(time) as f64 / 1e9;
        let others = totals.seen.saturating_sub(seen).saturating_sub(self.slow - slow);
        self.one_in = (others as f64 / self.sampled.max(1) as f64).max(1.0);
        self.sampled = 0;
        if let SlowRequests::Percent(percent) = self.config.slow
            && !totals.latencies.is_empty()
        {
            if totals.time.saturating_sub(self.past[1].time) > RECENT {
                self.past[0] = std::mem::replace(&mut self.past[1], totals.clone());
            }
            // Requests that the source does not report can't be kept.
            self.threshold = slowest(totals, &self.past[0], percent).max(totals.threshold.min(u64::MAX - 1));
        }
        let rate = if seconds > 0.0 { self.candidates / seconds } else { 0.0 };
        self.candidates = 0.0;
        self.ordinary = (rate / ORDINARY).max(1.0);
    }

    fn keep(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Requests end in the order of time, so that only the last spans can touch this one.
        let mut later = Vec::new();
        while let Some((from, until)) = self.spans.back().copied().filter(|(_, until)| *until >= start) {
            self.spans.pop_back();
            if from > end {
                later.push((from, until));
            } else {
                (start, end) = (start.min(from), end.max(until));
            }
        }
        self.spans.push_back((start, end));
        self.spans.extend(later.into_iter().rev());
    }
}

/// Returns the latency from which on requests are among so many per cent of those that ended
/// between two counts.
fn slowest(now: &RequestTotals, past: &RequestTotals, percent: f64) -> u64 {
    let earlier: HashMap<u64, u64> = past.latencies.iter().copied().collect();
    let since = |(latency, count): &(u64, u64)| (*latency, count.saturating_sub(*earlier.get(latency).unwrap_or(&0)));
    let counts: Vec<(u64, u64)> = now.latencies.iter().map(since).collect();
    let all = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let wanted = (all as f64 * percent / 100.0).max(1.0);
    let mut above = 0.0;
    for (latency, count) in counts.iter().rev() {
        above += *count as f64;
        if above >= wanted {
            // Buckets are a few per cent wide: with this one there are too many.
            return if above > 2.0 * wanted { latency.saturating_add(latency / 16).max(1) } else { *latency };
        }
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(slow: SlowRequests, memory: usize) -> KeepRing<u64> {
        KeepRing::new(KeepSlow { slow, memory })
    }

    #[test]
    fn what_surrounds_a_slow_request_is_kept() {
        let mut ring = ring(SlowRequests::Longer(1_000_000), 1 << 20);
        // One ordinary request is kept at first, to compare with.
        assert!(ring.request(1, 1_000_000, 1_000_100, true));
        ring.ordinary = 1e9;
        assert!(!ring.request(2, 2_000_000, 2_000_100, true));
        for time in (0..60).map(|step| step * 1_000_000) {
            ring.push(time, 100, time);
        }
        assert!(ring.request(3, 20_000_000, 40_000_000, true));
        assert!(ring.is_kept(3) && !ring.is_kept(2));
        let mut kept = Vec::new();
        while let Some((time, is_kept, _)) = ring.pop(u64::MAX) {
            if is_kept {
                kept.push(time / 1_000_000);
            }
        }
        assert_eq!(kept, std::iter::once(1).chain(15..=45).collect::<Vec<_>>());
    }

    #[test]
    fn the_percentile_follows_the_last_minute() {
        let mut ring = ring(SlowRequests::Percent(1.0), 1 << 20);
        assert_eq!(ring.threshold(), u64::MAX);
        let totals = |time: u64, fast, slow| RequestTotals {
            time: time * 1_000_000_000,
            seen: fast + slow,
            slow,
            sampled: 100,
            threshold: 500,
            latencies: vec![(100, fast), (1000, slow)],
        };
        ring.count(&totals(2, 1990, 10));
        assert!((101..=1000).contains(&ring.threshold()), "{}", ring.threshold());
        // What the source does not report can't be kept.
        ring.count(&totals(4, 3000, 10));
        assert!(ring.threshold() >= 500);
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_spans_are_sorted(steps in prop::collection::vec((0_u64..20_000_000, 0_u64..30_000_000, any::<bool>()), 0..200)) {
            let mut ring = ring(SlowRequests::Longer(10_000_000), 1000);
            let mut now = 0;
            for (id, (after, latency, is_request)) in (0..).zip(steps) {
                now += after;
                if is_request {
                    ring.request(id, now.saturating_sub(latency), now, latency > 5_000_000);
                }
                ring.push(now, 100, now);
                while ring.pop(now.saturating_sub(50_000_000)).is_some() {}
                prop_assert!(ring.bytes <= 1000);
                let spans: Vec<_> = ring.spans.iter().copied().collect();
                prop_assert!(spans.iter().all(|(start, end)| start <= end));
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0), "{spans:?}");
            }
        }
    }
}
