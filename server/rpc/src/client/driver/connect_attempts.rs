//! Schedule of connection attempts: the next address of a server, its time, and the protocol
//! version.
//!
//! Does not contain sockets (`socket_connection`).

use super::backoff::Backoff;
use super::random::Random;
use crate::wire::Version;
use leeward_core::units::{Nanos, Time};

/// Attempts to connect to one server.
#[derive(Clone, Debug)]
pub(crate) struct ConnectAttempts {
    made: usize,
    retry_at: Time,
    backoff: Backoff,
    /// A connection that has lasted longer counts as a success.
    stable_after: Nanos,
    version: Version,
}

impl ConnectAttempts {
    /// Creates a schedule whose first attempt is due at once.
    ///
    /// The wait after a failure begins with the first span and doubles up to the second.
    pub(crate) fn new(backoff: (Nanos, Nanos)) -> Self {
        ConnectAttempts {
            made: 0,
            retry_at: Time::ZERO,
            backoff: Backoff::new(backoff),
            stable_after: backoff.1,
            version: Version::NEWEST,
        }
    }

    /// Earliest time of the next attempt.
    pub(crate) fn next_at(&self) -> Time {
        self.retry_at
    }

    /// Makes the next attempt due now.
    pub(crate) fn expedite(&mut self, now: Time) {
        self.retry_at = self.retry_at.min(now);
    }

    /// Time that a connection must have been ready to count as a success.
    pub(crate) fn stable_after(&self) -> Nanos {
        self.stable_after
    }

    /// Protocol version of the next attempt.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Returns the address to try now, in turn.
    ///
    /// # Panics
    /// If the list is empty.
    pub(crate) fn next<'a, A>(&mut self, addresses: &'a [A]) -> &'a A {
        let address = &addresses[self.made % addresses.len()];
        self.made += 1;
        address
    }

    /// Records the end of the last attempt, failed or later. The server's other addresses come
    /// first, then a wait.
    pub(crate) fn record_end(&mut self, now: Time, addresses: usize, random: &mut Random) {
        let tried_all = self.made.is_multiple_of(addresses);
        self.retry_at = if tried_all { now + self.backoff.next(random) } else { now };
    }

    /// Records a success of the last attempt, which resets the backoff.
    pub(crate) fn record_success(&mut self) {
        self.backoff.reset();
    }

    /// Records the end of a stable connection. The next server at these addresses may speak a newer
    /// version.
    pub(crate) fn reset(&mut self) {
        self.record_success();
        self.version = Version::NEWEST;
    }

    /// Falls back to an older version, if there is one, and retries at once: the server does not
    /// speak the current one.
    pub(crate) fn downgrade_version(&mut self, now: Time) {
        if self.version > Version::One {
            self.version = Version::One;
            self.retry_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_tried_before_backing_off() {
        let (mut attempts, mut random) = (ConnectAttempts::new((Nanos(100), Nanos(1_000))), Random::new(1));
        for round in 0..3_u32 {
            let now = attempts.next_at();
            assert_eq!(attempts.next(&['a', 'b']), &'a');
            attempts.record_end(now, 2, &mut random);
            assert_eq!(attempts.next_at(), now);
            assert_eq!(attempts.next(&['a', 'b']), &'b');
            attempts.record_end(now, 2, &mut random);
            let (wait, span) = (attempts.next_at().since(now).0, 100 << round);
            assert!((span / 2..=span).contains(&wait), "{wait}");
        }
        attempts.reset();
        let now = attempts.next_at();
        attempts.next(&['a']);
        attempts.record_end(now, 1, &mut random);
        assert!(attempts.next_at().since(now) <= Nanos(100));
    }

    #[test]
    fn an_older_version_is_tried_at_once_and_only_once() {
        let (mut attempts, mut random) = (ConnectAttempts::new((Nanos(100), Nanos(1_000))), Random::new(1));
        let fail = |attempts: &mut ConnectAttempts, random: &mut Random| {
            let now = attempts.next_at();
            attempts.next(&['a']);
            attempts.record_end(now, 1, random);
            attempts.downgrade_version(now);
            attempts.next_at().since(now)
        };
        assert_eq!(attempts.version(), Version::NEWEST);
        assert_eq!(fail(&mut attempts, &mut random), Nanos::ZERO);
        assert_eq!(attempts.version(), Version::One);
        assert!(fail(&mut attempts, &mut random) > Nanos::ZERO);
        attempts.reset();
        assert_eq!(attempts.version(), Version::NEWEST);
    }
}
