//! Requests that a session sent in the last round trip. While credits are left over, the session
//! keeps as many. A client that sends more than one request per round trip has most of them on the
//! wire. Neither its demand nor its pending requests count those. Does not contain windows
//! (`server`).

use leeward_core::server::SessionState;
use leeward_core::units::{Nanos, Time};

/// Requests of a session in this round trip and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    since: Time,
    current: u32,
    previous: u32,
}

impl Usage {
    /// Counts a request.
    pub(super) fn record(&mut self, at: Time, round_trip: Nanos) {
        let passed = at.since(self.since);
        if passed >= round_trip {
            self.previous = if passed < round_trip * 2 { self.current } else { 0 };
            self.current = 0;
            self.since = at;
        }
        self.current = self.current.saturating_add(1);
    }

    /// Credits that the session needs now to go on at its rate. One comes with each response
    /// anyway, and a session that has stopped needs none.
    pub(super) fn needed_credits(self, at: Time, round_trip: Nanos) -> i64 {
        let max = match at.since(self.since) {
            passed if passed < round_trip => self.current.max(self.previous),
            passed if passed < round_trip * 2 => self.current,
            _ => 0,
        };
        if max > 1 { max.into() } else { 0 }
    }
}

impl SessionState for Usage {
    fn from_words([since, counts]: [u64; 2]) -> Self {
        Usage { since: Time(since), current: (counts >> 32) as u32, previous: counts as u32 }
    }

    fn into_words(self) -> [u64; 2] {
        [self.since.0, u64::from(self.current) << 32 | u64::from(self.previous)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = Nanos::from_micros(100);

    /// Credits needed by a session with requests at these times (us), at the time of the last.
    fn used(times: &[u64]) -> i64 {
        used_at(times, times.last().copied().unwrap_or(0))
    }

    fn used_at(times: &[u64], at: u64) -> i64 {
        let mut usage = Usage::from_words([0; 2]);
        for time in times {
            usage.record(Time(time * 1_000), ROUND_TRIP);
        }
        assert_eq!(Usage::from_words(usage.into_words()), usage);
        usage.needed_credits(Time(at * 1_000), ROUND_TRIP)
    }

    #[test]
    fn usage_is_the_requests_sent_within_one_round_trip() {
        assert_eq!(used(&[1_000, 1_010, 1_020, 1_030]), 4);
        assert_eq!(used(&[1_000, 1_010, 1_020, 1_100]), 3, "the one before counts");
        assert_eq!(used(&[1_000, 1_010, 1_020, 1_100, 1_200]), 0, "the one before that does not");
    }

    #[test]
    fn sequential_requests_need_no_extra_credit() {
        assert_eq!(used(&[]), 0);
        assert_eq!(used(&[50]), 0);
        assert_eq!(used(&[1_000, 1_150, 1_300]), 0);
    }

    #[test]
    fn usage_restarts_after_a_pause() {
        assert_eq!(used(&[1_000, 1_001, 1_002, 9_000]), 0);
        let burst = [1_000, 1_001, 1_002];
        assert_eq!([1_099, 1_150, 1_200].map(|at| used_at(&burst, at)), [3, 3, 0]);
    }
}
