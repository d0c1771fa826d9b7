//! Use of the cores: integrals over the numbers of cores in each state, exact, in core-nanoseconds.

use leeward_core::units::{Nanos, Time};
use leeward_outcome::CoreUsage;

/// How many cores are in which state; the others are parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreCounts {
    pub(crate) active: u32,
    pub(crate) granting: u32,
    pub(crate) searching: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct CoreTime {
    active: u128,
    granting: u128,
    searching: u128,
}

/// The integrals.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    current: CoreCounts,
    since: Time,
    areas: CoreTime,
    at_warmup: (CoreTime, u64, u64),
    at_window: CoreTime,
    at_tick: CoreTime,
    grants: u64,
    parks: u64,
}

impl Usage {
    /// The numbers are these from `now` on.
    pub(crate) fn set(&mut self, now: Time, numbers: CoreCounts) {
        self.advance(now);
        self.current = numbers;
    }

    pub(crate) fn record_grants(&mut self, cores: u32) {
        self.grants += u64::from(cores);
    }

    pub(crate) fn record_park(&mut self) {
        self.parks += 1;
    }

    fn advance(&mut self, now: Time) {
        let span = u128::from(now.since(self.since).0);
        self.since = now;
        self.areas.active += span * u128::from(self.current.active);
        self.areas.granting += span * u128::from(self.current.granting);
        self.areas.searching += span * u128::from(self.current.searching);
    }

    /// CPU time that went into work, and CPU time there was, since this was asked last.
    pub(crate) fn since_tick(&mut self, now: Time) -> (Nanos, Nanos) {
        self.advance(now);
        let available = self.areas.active - self.at_tick.active;
        let searched = self.areas.searching - self.at_tick.searching;
        self.at_tick = self.areas;
        (Nanos(available.saturating_sub(searched) as u64), Nanos(available as u64))
    }

    pub(crate) fn end_warmup(&mut self, now: Time) {
        self.advance(now);
        self.at_warmup = (self.areas, self.grants, self.parks);
    }

    /// Mean number of cores held since the last window's end.
    pub(crate) fn end_window(&mut self, now: Time, length: Nanos) -> f64 {
        self.advance(now);
        let held = self.areas.active + self.areas.granting - self.at_window.active - self.at_window.granting;
        self.at_window = self.areas;
        held as f64 / length.0.max(1) as f64
    }

    /// Over the measured part, which ends at `end` after `measured`, on a server of `cores`.
    pub(crate) fn report(&mut self, end: Time, measured: Nanos, cores: u32) -> CoreUsage {
        self.advance(end);
        let (before, grants, parks) = self.at_warmup;
        let span = measured.0.max(1) as f64;
        let held = self.areas.active + self.areas.granting - before.active - before.granting;
        let mean_cores = held as f64 / span;
        CoreUsage {
            mean_cores,
            mean_searching: (self.areas.searching - before.searching) as f64 / span,
            best_effort_share: 1.0 - mean_cores / f64::from(cores),
            grants: self.grants - grants,
            parks: self.parks - parks,
        }
    }
}
