//! Attempts at a connection: which of a server's addresses is next, when, and in which version of the protocol. Never here: sockets
//! (`life`).

use super::backoff::Backoff;
use super::random::Random;
use crate::wire::Version;
use leeward_core::units::{Nanos, Time};

/// Attempts at one server.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    made: usize,
    retry_at: Time,
    backoff: Backoff,
    /// A connection that has held for longer is no failure.
    longest: Nanos,
    version: Version,
}

impl Attempts {
    /// None so far; the first may be made at once. Waits between failures begin with the first span and double up to the second.
    pub(crate) fn new(backoff: (Nanos, Nanos)) -> Self {
        Attempts {
            made: 0,
            retry_at: Time::ZERO,
            backoff: Backoff::new(backoff),
            longest: backoff.1,
            version: Version::NEWEST,
        }
    }

    /// When the next one may be made.
    pub(crate) fn due(&self) -> Time {
        self.retry_at
    }

    /// The next one may be made now.
    pub(crate) fn hurry(&mut self, now: Time) {
        self.retry_at = self.retry_at.min(now);
    }

    /// How long a connection must have been ready to count as a success.
    pub(crate) fn longest(&self) -> Nanos {
        self.longest
    }

    /// Version of the protocol in which the next one is made.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The address to try now, in turn.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn next<'a, A>(&mut self, addresses: &'a [A]) -> &'a A {
        let address = &addresses[self.made % addresses.len()];
        self.made += 1;
        address
    }

    /// The last attempt has ended, by failing or later. The other addresses of the server come first, then a wait.
    pub(crate) fn ended(&mut self, now: Time, addresses: usize, random: &mut Random) {
        let tried_all = self.made.is_multiple_of(addresses);
        self.retry_at = if tried_all { now + self.backoff.next(random) } else { now };
    }

    /// The last attempt has led to something: failures are counted anew.
    pub(crate) fn succeeded(&mut self) {
        self.backoff.reset();
    }

    /// A connection that has held is over. The next server at these addresses may speak a newer version.
    pub(crate) fn held(&mut self) {
        self.succeeded();
        self.version = Version::NEWEST;
    }

    /// The server does not speak the version: it is asked at once in an older one, if there is one.
    pub(crate) fn version_was_refused(&mut self, now: Time) {
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
    fn all_addresses_are_tried_before_the_wait() {
        let (mut attempts, mut random) = (Attempts::new((Nanos(100), Nanos(1_000))), Random::new(1));
        for round in 0..3_u32 {
            let now = attempts.due();
            assert_eq!(attempts.next(&['a', 'b']), &'a');
            attempts.ended(now, 2, &mut random);
            assert_eq!(attempts.due(), now);
            assert_eq!(attempts.next(&['a', 'b']), &'b');
            attempts.ended(now, 2, &mut random);
            let (wait, span) = (attempts.due().since(now).0, 100 << round);
            assert!((span / 2..=span).contains(&wait), "{wait}");
        }
        attempts.held();
        let now = attempts.due();
        attempts.next(&['a']);
        attempts.ended(now, 1, &mut random);
        assert!(attempts.due().since(now) <= Nanos(100));
    }

    #[test]
    fn an_older_version_is_tried_at_once_and_only_once() {
        let (mut attempts, mut random) = (Attempts::new((Nanos(100), Nanos(1_000))), Random::new(1));
        let fail = |attempts: &mut Attempts, random: &mut Random| {
            let now = attempts.due();
            attempts.next(&['a']);
            attempts.ended(now, 1, random);
            attempts.version_was_refused(now);
            attempts.due().since(now)
        };
        assert_eq!(attempts.version(), Version::NEWEST);
        assert_eq!(fail(&mut attempts, &mut random), Nanos::ZERO);
        assert_eq!(attempts.version(), Version::One);
        assert!(fail(&mut attempts, &mut random) > Nanos::ZERO);
        attempts.held();
        assert_eq!(attempts.version(), Version::NEWEST);
    }
}
