//! Load of a gate's workers, for load balancers that weigh replicas (ORCA). Does not contain
//! headers.

use leeward_core::units::{Nanos, Time};

/// Interval over which work is counted. A shorter one holds a few requests of some milliseconds and
/// is mostly noise.
const SPAN: Nanos = Nanos::from_millis(100);

/// Load of a gate's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// The greater of the workers' busy share and [`Load::delay`]. Above 1, demand exceeds
    /// capacity.
    pub utilization: f64,
    /// The queueing delay divided by its target.
    pub delay: f64,
    /// Requests executed per second.
    pub rate: f64,
}

/// Work of the last interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utilization {
    at: Time,
    cpu_ns: u64,
    executed: u64,
    /// Busy share of the workers' time, 0 to 1.
    pub(crate) share: f64,
    /// Requests per second.
    pub(crate) rate: f64,
}

impl Utilization {
    /// Returns the utilization of the last interval. `work`: time that requests have occupied
    /// workers so far, and their number.
    pub(crate) fn update(&mut self, now: Time, workers: usize, work: impl FnOnce() -> (u64, u64)) -> Utilization {
        let passed = now.since(self.at);
        if passed >= SPAN {
            let (worked_ns, executed) = work();
            let worked = worked_ns.wrapping_sub(self.cpu_ns);
            self.share = (worked as f64 / passed.0 as f64 / workers.max(1) as f64).min(1.0);
            self.rate = executed.wrapping_sub(self.executed) as f64 * 1e9 / passed.0 as f64;
            (self.at, self.cpu_ns, self.executed) = (now, worked_ns, executed);
        }
        *self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn utilization_covers_the_last_interval_and_all_workers() {
        let mut busy = Utilization::default();
        let mut update = |ms: u64, worked_ns: u64, executed: u64| {
            let busy = busy.update(Time::ZERO + Nanos::from_millis(ms), 2, || (worked_ns, executed));
            (busy.share, busy.rate)
        };
        assert_eq!(update(50, 40_000_000, 10), (0.0, 0.0), "too early to say");
        assert_eq!(update(100, 100_000_000, 20), (0.5, 200.0));
        assert_eq!(update(150, 200_000_000, 90), (0.5, 200.0), "the last span's");
        assert_eq!(update(200, 1_000_000_000, 90), (1.0, 700.0), "never more than all");
        assert_eq!(update(400, 1_000_000_000, 90), (0.0, 0.0));
    }
}
