//! Recent times at the backend, their percentiles, and the time that a dequeued request must have
//! left. Does not contain limits.

use crate::TICK;
use leeward_core::units::Nanos;
use std::collections::VecDeque;

/// The latest `N` times at the backend, in a ring.
#[derive(Clone, Debug)]
pub struct SojournWindow<const N: usize> {
    ring: [u64; N],
    scratch: [u64; N],
    length: usize,
    next: usize,
}

impl<const N: usize> Default for SojournWindow<N> {
    fn default() -> Self {
        SojournWindow { ring: [0; N], scratch: [0; N], length: 0, next: 0 }
    }
}

impl<const N: usize> SojournWindow<N> {
    /// Adds a time; the oldest of a full window leaves.
    pub fn push(&mut self, sojourn: Nanos) {
        self.ring[self.next] = sojourn.0;
        self.next = (self.next + 1) % N;
        self.length = (self.length + 1).min(N);
    }

    /// Number of times in the window.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the window has no times.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        self.length = 0;
        self.next = 0;
    }

    /// The `share` quantile (0 to 1) of the window; zero if it is empty.
    pub fn quantile(&mut self, share: f64) -> Nanos {
        self.quantile_of_latest(self.length, Nanos::MAX, share)
    }

    /// The same of those of the `count` latest times that are at most `longest`; `Nanos::MAX` if
    /// there are none.
    pub fn quantile_of_latest(&mut self, count: usize, longest: Nanos, share: f64) -> Nanos {
        if self.length == 0 {
            return Nanos::ZERO;
        }
        let latest = (0..count.min(self.length)).map(|back| self.ring[(self.next + N - 1 - back) % N]);
        let mut count = 0;
        for time in latest.filter(|time| *time <= longest.0) {
            self.scratch[count] = time;
            count += 1;
        }
        if count == 0 {
            return Nanos::MAX;
        }
        let times = &mut self.scratch[..count];
        let rank = (share * (count - 1) as f64) as usize;
        Nanos(*times.select_nth_unstable(rank.min(count - 1)).1)
    }
}

/// Estimate of the time that a request needs at the backend. A request that has less left of its
/// objective is rejected when it is dequeued: it would be late, and cost the backend as much as one
/// in time.
///
/// The estimate is the 99th percentile of the latest second's times, of 100 to 1,000, so that at
/// most one answer in a hundred is late. Older times are those of another limit, and a backend with
/// few answers a second would be judged by them for long. Requests that would be late anyway cost
/// the backend more than those that are rejected though they would be in time: the goodput is
/// higher than with the 95th percentile.
#[derive(Clone, Debug, Default)]
pub struct DeadlineMargin {
    window: SojournWindow<{ DeadlineMargin::MOST }>,
    margin: Nanos,
    /// Times that were added since the last update, and before each of the updates of a second.
    added: usize,
    by_tick: VecDeque<usize>,
}

impl DeadlineMargin {
    /// Largest and least number of times, and the updates in a second.
    const MOST: usize = 1_000;
    const LEAST: usize = 100;
    const UPDATES: usize = (Nanos::from_secs(1).0 / TICK.0) as usize;
    /// Share of requests that take no longer than the margin: 0.99 and a standard error of it over
    /// 1,000 times, for half of the estimates of a percentile are too low.
    const QUANTILE: f64 = 0.993;
    /// Share of requests that take no longer than the objective where no kind of them is too long.
    const FEW_LATE: f64 = 0.97;
    /// Least number of times from which a percentile means anything.
    const MIN_TIMES: usize = 10;
    /// Largest margin, as a share of the objective. The rest is for the queue of the proxy: without
    /// any wait there, the backend idles between two requests, and the margin learns no more.
    const MAX_SHARE: f64 = 0.85;

    /// Adds a time at the backend.
    pub fn push(&mut self, sojourn: Nanos) {
        self.window.push(sojourn);
        self.added += 1;
    }

    /// Computes the margin anew; the proxy calls it at each tick.
    pub fn update(&mut self, objective: Nanos) {
        self.by_tick.push_back(std::mem::take(&mut self.added));
        if self.by_tick.len() > Self::UPDATES {
            self.by_tick.pop_front();
        }
        if self.window.len() >= Self::MIN_TIMES {
            let recent = self.by_tick.iter().sum::<usize>().max(Self::LEAST);
            // Requests that take longer by themselves are late whatever they wait: they say nothing
            // of the time that others need.
            let are_many_late = self.window.quantile_of_latest(recent, Nanos::MAX, Self::FEW_LATE) > objective;
            let longest = if are_many_late { objective } else { Nanos::MAX };
            let quantile = self.window.quantile_of_latest(recent, longest, Self::QUANTILE);
            self.margin = quantile.min(objective.scale(Self::MAX_SHARE));
        }
    }

    /// Time that a dequeued request must have left of its objective.
    pub fn margin(&self) -> Nanos {
        self.margin
    }
}
