//! Use of the cores: how long each was held.

use leeward_core::units::{Nanos, Time};

/// Core usage since the start of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreUsage {
    /// Time since the cores began.
    pub span: Nanos,
    /// Cores that the server has now, including granted ones that are not awake yet.
    pub cores: u32,
    /// Time for which each core was parked.
    pub parked: Vec<Nanos>,
    /// Number of grants.
    pub grants: u64,
    /// Number of times that a core parked.
    pub parks: u64,
}

impl CoreUsage {
    /// Mean number of cores that the server has had, including granted ones not awake yet.
    pub fn mean_cores(&self) -> f64 {
        let parked: u64 = self.parked.iter().map(|span| span.0).sum();
        self.parked.len() as f64 - parked as f64 / self.span.0.max(1) as f64
    }

    /// Grants per second.
    pub fn grants_per_second(&self) -> f64 {
        self.grants as f64 * 1e9 / self.span.0.max(1) as f64
    }

    /// Parks per second.
    pub fn parks_per_second(&self) -> f64 {
        self.parks as f64 * 1e9 / self.span.0.max(1) as f64
    }
}

/// Counter of core usage.
#[derive(Debug)]
pub(super) struct UsageCounter {
    began: Time,
    /// Time since which each core is parked.
    since: Vec<Option<Time>>,
    parked: Vec<Nanos>,
    pub(super) grants: u64,
    pub(super) parks: u64,
    /// Core time that was not parked, up to `at`.
    held: Nanos,
    at: Time,
}

impl UsageCounter {
    pub(super) fn new(cores: usize, parked: impl Fn(usize) -> bool, now: Time) -> Self {
        UsageCounter {
            began: now,
            since: (0..cores).map(|core| parked(core).then_some(now)).collect(),
            parked: vec![Nanos::ZERO; cores],
            grants: 0,
            parks: 0,
            held: Nanos::ZERO,
            at: now,
        }
    }

    pub(super) fn park(&mut self, core: usize, now: Time) {
        self.advance(now);
        self.since[core] = Some(now);
        self.parks += 1;
    }

    /// Counts the core as held from now on; it is active or granted.
    pub(super) fn unpark(&mut self, core: usize, now: Time) {
        self.advance(now);
        if let Some(since) = self.since[core].take() {
            self.parked[core] += now.since(since);
        }
    }

    /// Core time so far that was not parked.
    pub(super) fn held(&mut self, now: Time) -> Nanos {
        self.advance(now);
        self.held
    }

    fn advance(&mut self, now: Time) {
        let held_cores = self.since.iter().filter(|since| since.is_none()).count() as u64;
        self.held += Nanos(now.since(self.at).0.saturating_mul(held_cores));
        self.at = self.at.max(now);
    }

    pub(super) fn report(&self, cores: u32, now: Time) -> CoreUsage {
        let current = self.since.iter().map(|since| since.map_or(Nanos::ZERO, |since| now.since(since)));
        CoreUsage {
            span: now.since(self.began),
            cores,
            parked: self.parked.iter().zip(current).map(|(before, current)| *before + current).collect(),
            grants: self.grants,
            parks: self.parks,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parked_and_held_time_make_up_all_time() {
        let mut counting = UsageCounter::new(2, |core| core == 1, Time(10));
        counting.unpark(1, Time(40));
        counting.park(1, Time(50));
        assert_eq!(counting.held(Time(60)), Nanos(50 + 10));
        let usage = counting.report(1, Time(60));
        assert_eq!((usage.span, usage.cores, usage.parks), (Nanos(50), 1, 1));
        assert_eq!(usage.parked, [Nanos(0), Nanos(40)]);
        assert_eq!(usage.mean_cores(), 1.2);
        counting.unpark(1, Time(70));
        assert_eq!(counting.report(2, Time(100)).parked, [Nanos(0), Nanos(50)]);
    }
}
