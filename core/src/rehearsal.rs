//! Rehearsals of admission: the queue that would be if decisions were enforced, and who is enforced upon. Without that queue a rehearsal
//! would see an overload that never ends, because nothing of it is refused. Never here: decisions.
//!
//! The queue's clock is the arrival of requests at the machine, as far as their age is known: a server that drowns reads requests no faster
//! than it answers them, so that at the time of reading no overload could be seen.

use crate::units::{Nanos, Time};
use std::collections::VecDeque;

/// Ends of requests that one look takes: whoever comes after a long silence must not do the work of thousands.
const ENDS: usize = 256;

/// Whether a refusal of whoever has this number is one where `percent` of a hundred are refused in earnest. The same number has the same
/// answer each time, and whoever is meant by a share is meant by each greater one.
pub fn enforces(percent: u8, number: u64) -> bool {
    // Fibonacci hashing: neighbours are spread evenly.
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 100 < u64::from(percent)
}

/// Work that is ahead of the next request, in nanoseconds of all workers, and the requests that it is of, each with a ticket of the
/// owner's.
#[derive(Debug)]
pub struct Twin<T> {
    work: u64,
    at: Time,
    /// When it was looked at last, by the plant's clock.
    looked: Time,
    /// In the order of their ends.
    under_way: VecDeque<Leaving<T>>,
}

/// A request that would be under way.
#[derive(Debug)]
pub struct Leaving<T> {
    /// When it would begin to be executed.
    begins: Time,
    /// When it would end.
    pub at: Time,
    /// From its arrival to its end.
    pub sojourn: Nanos,
    /// The owner's ticket of it.
    pub ticket: T,
}

impl<T> Default for Twin<T> {
    fn default() -> Self {
        Twin { work: 0, at: Time::ZERO, looked: Time::ZERO, under_way: VecDeque::new() }
    }
}

impl<T> Twin<T> {
    /// The time of a request that came then and is read now: not before that of any other; the delay that it would have met; and the
    /// requests that would have ended meanwhile.
    pub fn look(&mut self, read: Time, came: Time) -> (Time, Nanos, Vec<Leaving<T>>) {
        self.looked = self.looked.max(read);
        let now = self.at.max(came);
        self.work = self.work.saturating_sub(now.since(self.at).0);
        self.at = now;
        let ended = self.under_way.iter().take(ENDS).take_while(|leaving| leaving.at <= now).count();
        (now, Nanos(self.work), self.under_way.drain(..ended).collect())
    }

    /// Age of the oldest request that would still be queued: what a server's control loop is told as its queueing delay. The delay of the
    /// next request would grow faster than time under more than twice the load.
    pub fn oldest(&self) -> Nanos {
        let waits = self.under_way.iter().find(|leaving| leaving.begins > self.at);
        waits.map_or(Nanos::ZERO, |leaving| self.at.since(Time(leaving.at.0 - leaving.sojourn.0)))
    }

    /// The delay that a request would meet now. It ends while nobody comes: a balancer that sends nobody here would never learn else.
    pub fn delay(&self, now: Time) -> Nanos {
        Nanos(self.work.saturating_sub(now.since(self.looked).0))
    }

    /// The request that came last, of this time on one of `workers`, would have been admitted.
    pub fn admit(&mut self, time: Nanos, workers: usize, ticket: T) {
        let waits = Nanos(self.work);
        self.work = self.work.saturating_add(time.0 / workers.max(1) as u64);
        let begins = self.at + waits;
        let at = begins + time;
        let sojourn = at.since(self.at);
        // A short request on another worker ends before a long one that came first.
        let place = self.under_way.partition_point(|other| other.at <= at);
        self.under_way.insert(place, Leaving { begins, at, sojourn, ticket });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_queue_that_would_be_ends_while_nobody_comes() {
        let mut twin = Twin::<()> { work: 1_000, ..Twin::default() };
        // Came long before it was read.
        let (_, delay, _) = twin.look(Time(5_000), Time(100));
        assert_eq!(delay, Nanos(900));
        assert_eq!(twin.delay(Time(5_000)), Nanos(900));
        assert_eq!(twin.delay(Time(5_600)), Nanos(300));
        assert_eq!(twin.delay(Time(9_000)), Nanos::ZERO);
    }

    #[test]
    fn the_oldest_in_the_queue_is_the_first_that_has_not_begun() {
        let mut twin = Twin::default();
        for came in [0, 100, 200] {
            twin.look(Time(came), Time(came));
            twin.admit(Nanos(1_000), 1, ());
        }
        assert_eq!(twin.oldest(), Nanos(100), "of the second, while the first is executed");
        twin.look(Time(1_500), Time(1_500));
        assert_eq!(twin.oldest(), Nanos(1_300));
        twin.look(Time(3_500), Time(3_500));
        assert_eq!(twin.oldest(), Nanos::ZERO);
    }

    #[test]
    fn requests_leave_in_the_order_of_their_ends() {
        let mut twin = Twin::default();
        twin.look(Time(10), Time(10));
        twin.admit(Nanos(400), 2, 'a');
        twin.admit(Nanos(50), 2, 'b');
        let (_, delay, ended) = twin.look(Time(300), Time(300));
        assert_eq!(
            (delay, ended.iter().map(|of| (of.ticket, of.at, of.sojourn)).collect::<Vec<_>>()),
            (Nanos::ZERO, vec![('b', Time(260), Nanos(250))])
        );
        assert_eq!(twin.look(Time(900), Time(900)).2.len(), 1);
    }

    #[test]
    fn a_share_is_about_that_many_and_grows_around_the_same() {
        for percent in [0, 5, 50, 100] {
            let meant = (0..10_000).filter(|number| enforces(percent, *number)).count();
            assert!(meant.abs_diff(usize::from(percent) * 100) < 150, "{meant} of 10,000 at {percent} %");
        }
        assert!((0..10_000).all(|number| enforces(50, number) || !enforces(5, number)));
    }
}
