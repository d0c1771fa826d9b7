//! Use of the cores: exact integrals over the number of cores in each state, in core-nanoseconds.

use leeward_core::units::{Nanos, Time};
use leeward_outcome::CoreUsage;

/// Number of cores in each state; the others are parked.
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

/// Integrals since the beginning of the run, with snapshots.
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
    /// Sets the numbers of cores from `now` on.
    pub(crate) fn set(&mut self, now: Time, counts: CoreCounts) {
        self.advance(now);
        self.current = counts;
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

    /// CPU time spent on work, and CPU time available, since the last call.
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

    /// Returns the use of `cores` cores in the measured interval, which ends at `end` after
    /// `measured`.
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
