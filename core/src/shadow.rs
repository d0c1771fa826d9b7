//! Rehearsals of admission: the queue that would be if decisions were enforced, and who is enforced upon. Without that queue a rehearsal
//! would see an overload that never ends, because nothing of it is refused. Never here: decisions.
//!
//! The queue's clock is the arrival of requests at the machine, as far as their age is known: a server that drowns reads requests no faster
//! than it answers them, so that at the time of reading no overload could be seen.

use crate::units::{Nanos, Time};
use std::collections::VecDeque;

/// Ends of requests that one look takes: whoever comes after a long silence must not do the work of thousands.
const MAX_COMPLETIONS: usize = 256;

/// Whether a refusal of whoever has this number is one where `percent` of a hundred are refused in earnest. The same number has the same
/// answer each time, and whoever is meant by a share is meant by each greater one.
pub fn is_enforced(percent: u8, number: u64) -> bool {
    // Fibonacci hashing: neighbours are spread evenly.
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 100 < u64::from(percent)
}

/// Work that is ahead of the next request, in nanoseconds of all workers, and the requests that it is of, each with a ticket of the
/// owner's.
#[derive(Debug)]
pub struct ShadowQueue<T> {
    backlog: u64,
    now: Time,
    /// When it was looked at last, by the plant's clock.
    last_poll: Time,
    /// In the order of their ends.
    in_flight: VecDeque<ShadowRequest<T>>,
}

/// A request that would be under way.
#[derive(Debug)]
pub struct ShadowRequest<T> {
    /// When it would begin to be executed.
    start: Time,
    /// When it would end.
    pub end: Time,
    /// From its arrival to its end.
    pub sojourn: Nanos,
    /// The owner's ticket of it.
    pub token: T,
}

impl<T> Default for ShadowQueue<T> {
    fn default() -> Self {
        ShadowQueue { backlog: 0, now: Time::ZERO, last_poll: Time::ZERO, in_flight: VecDeque::new() }
    }
}

impl<T> ShadowQueue<T> {
    /// The time of a request that came then and is read now: not before that of any other; the delay that it would have met; and the
    /// requests that would have ended meanwhile.
    pub fn poll(&mut self, read: Time, came: Time) -> (Time, Nanos, Vec<ShadowRequest<T>>) {
        self.last_poll = self.last_poll.max(read);
        let now = self.now.max(came);
        self.backlog = self.backlog.saturating_sub(now.since(self.now).0);
        self.now = now;
        let ended = self.in_flight.iter().take(MAX_COMPLETIONS).take_while(|leaving| leaving.end <= now).count();
        (now, Nanos(self.backlog), self.in_flight.drain(..ended).collect())
    }

    /// Age of the oldest request that would still be queued: what a server's control loop is told as its queueing delay. The delay of the
    /// next request would grow faster than time under more than twice the load.
    pub fn oldest(&self) -> Nanos {
        let waits = self.in_flight.iter().find(|leaving| leaving.start > self.now);
        waits.map_or(Nanos::ZERO, |leaving| self.now.since(Time(leaving.end.0 - leaving.sojourn.0)))
    }

    /// The delay that a request would meet now. It ends while nobody comes: a balancer that sends nobody here would never learn else.
    pub fn delay(&self, now: Time) -> Nanos {
        Nanos(self.backlog.saturating_sub(now.since(self.last_poll).0))
    }

    /// The request that came last, of this time on one of `workers`, would have been admitted.
    pub fn admit(&mut self, time: Nanos, workers: usize, ticket: T) {
        let waits = Nanos(self.backlog);
        self.backlog = self.backlog.saturating_add(time.0 / workers.max(1) as u64);
        let begins = self.now + waits;
        let at = begins + time;
        let sojourn = at.since(self.now);
        // A short request on another worker ends before a long one that came first.
        let place = self.in_flight.partition_point(|other| other.end <= at);
        self.in_flight.insert(place, ShadowRequest { start: begins, end: at, sojourn, token: ticket });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_queue_that_would_be_ends_while_nobody_comes() {
        let mut twin = ShadowQueue::<()> { backlog: 1_000, ..ShadowQueue::default() };
        // Came long before it was read.
        let (_, delay, _) = twin.poll(Time(5_000), Time(100));
        assert_eq!(delay, Nanos(900));
        assert_eq!(twin.delay(Time(5_000)), Nanos(900));
        assert_eq!(twin.delay(Time(5_600)), Nanos(300));
        assert_eq!(twin.delay(Time(9_000)), Nanos::ZERO);
    }

    #[test]
    fn the_oldest_in_the_queue_is_the_first_that_has_not_begun() {
        let mut twin = ShadowQueue::default();
        for came in [0, 100, 200] {
            twin.poll(Time(came), Time(came));
            twin.admit(Nanos(1_000), 1, ());
        }
        assert_eq!(twin.oldest(), Nanos(100), "of the second, while the first is executed");
        twin.poll(Time(1_500), Time(1_500));
        assert_eq!(twin.oldest(), Nanos(1_300));
        twin.poll(Time(3_500), Time(3_500));
        assert_eq!(twin.oldest(), Nanos::ZERO);
    }

    #[test]
    fn requests_leave_in_the_order_of_their_ends() {
        let mut twin = ShadowQueue::default();
        twin.poll(Time(10), Time(10));
        twin.admit(Nanos(400), 2, 'a');
        twin.admit(Nanos(50), 2, 'b');
        let (_, delay, ended) = twin.poll(Time(300), Time(300));
        assert_eq!(
            (delay, ended.iter().map(|of| (of.token, of.end, of.sojourn)).collect::<Vec<_>>()),
            (Nanos::ZERO, vec![('b', Time(260), Nanos(250))])
        );
        assert_eq!(twin.poll(Time(900), Time(900)).2.len(), 1);
    }

    #[test]
    fn a_share_is_about_that_many_and_grows_around_the_same() {
        for percent in [0, 5, 50, 100] {
            let meant = (0..10_000).filter(|number| is_enforced(percent, *number)).count();
            assert!(meant.abs_diff(usize::from(percent) * 100) < 150, "{meant} of 10,000 at {percent} %");
        }
        assert!((0..10_000).all(|number| is_enforced(50, number) || !is_enforced(5, number)));
    }
}
