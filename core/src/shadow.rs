//! Shadow mode of admission: the queue as it would be with enforced decisions, and the clients for
//! which decisions are enforced. Without this shadow queue, shadow mode would see an endless
//! overload, because no request is rejected. Does not contain decisions.
//!
//! The queue's clock is the arrival of requests at the machine, as far as their age is known. An
//! overloaded server reads requests no faster than it answers them, so the time of reading would
//! show no overload. Nor does it read them in the order of their arrival: one connection's may wait
//! for seconds while another's are read at once.

use crate::units::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Completions that one poll takes. The first request after a long silence must not process
/// thousands of them.
const MAX_COMPLETIONS: usize = 256;

/// Largest number of arrivals that are held to put them in order.
const MAX_HELD: usize = 4_096;

/// Requests in order after which fewer arrivals are held.
const CALM: u32 = 1_024;

/// Whether a rejection is enforced for the client with this number, at `percent` percent of
/// clients. The result is the same for the same number each time. A client that one percentage
/// covers is covered by each larger one.
pub fn is_enforced(percent: u8, number: u64) -> bool {
    // Fibonacci hashing spreads neighbouring numbers evenly.
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 100 < u64::from(percent)
}

/// Queue of a shadow server: the backlog in nanoseconds of all workers together, and the admitted
/// requests, each with a token of the owner.
#[derive(Debug)]
pub struct ShadowQueue<T> {
    backlog: u64,
    now: Time,
    arrivals: ArrivalOrder,
    /// Time of the last poll, by the plant's clock.
    last_poll: Time,
    /// Requests in the order of their ends.
    in_flight: VecDeque<ShadowRequest<T>>,
}

/// A request in progress at the shadow server.
#[derive(Debug)]
pub struct ShadowRequest<T> {
    /// Time at which its execution would begin.
    start: Time,
    /// Time at which it would end.
    pub end: Time,
    /// Time from its arrival to its end.
    pub sojourn: Nanos,
    /// The owner's token.
    pub token: T,
}

impl<T> Default for ShadowQueue<T> {
    fn default() -> Self {
        ShadowQueue {
            backlog: 0,
            now: Time::ZERO,
            arrivals: ArrivalOrder::default(),
            last_poll: Time::ZERO,
            in_flight: VecDeque::new(),
        }
    }
}

impl<T> ShadowQueue<T> {
    /// Advances the queue to a request that arrived at `arrived` and is read at `read`.
    ///
    /// Returns the request's time (not before that of any earlier request), its queueing delay, and
    /// the requests that ended meanwhile.
    pub fn poll(&mut self, read: Time, arrived: Time) -> (Time, Nanos, Vec<ShadowRequest<T>>) {
        self.last_poll = self.last_poll.max(read);
        let now = self.now.max(self.arrivals.next(self.now, arrived));
        self.backlog = self.backlog.saturating_sub(now.since(self.now).0);
        self.now = now;
        let ended = self.in_flight.iter().take(MAX_COMPLETIONS).take_while(|leaving| leaving.end <= now).count();
        (now, Nanos(self.backlog), self.in_flight.drain(..ended).collect())
    }

    /// Age of the oldest request still in the queue: the queueing delay for the control loop. The
    /// delay of the next request would grow faster than time at more than twice the load.
    pub fn oldest(&self) -> Nanos {
        let waiting = self.in_flight.iter().find(|leaving| leaving.start > self.now);
        waiting.map_or(Nanos::ZERO, |leaving| self.now.since(Time(leaving.end.0 - leaving.sojourn.0)))
    }

    /// Queueing delay of a request that arrives now. The delay falls while no request arrives:
    /// otherwise a balancer that sends none here would never see it fall.
    pub fn delay(&self, now: Time) -> Nanos {
        Nanos(self.backlog.saturating_sub(now.since(self.last_poll).0))
    }

    /// Admits the request of the last poll, which takes `time` on one of `workers`.
    pub fn admit(&mut self, time: Nanos, workers: usize, owner_token: T) {
        let wait = Nanos(self.backlog);
        self.backlog = self.backlog.saturating_add(time.0 / workers.max(1) as u64);
        let begin = self.now + wait;
        let at = begin + time;
        let sojourn = at.since(self.now);
        // A short request on another worker ends before an earlier long one.
        let index = self.in_flight.partition_point(|other| other.end <= at);
        self.in_flight.insert(index, ShadowRequest { start: begin, end: at, sojourn, token: owner_token });
    }
}

/// Puts times of arrival in order. If the newest moved the clock, older ones that are read later
/// would all seem to arrive at once.
#[derive(Debug, Default)]
struct ArrivalOrder {
    /// Times that have not been returned: as many as it takes for the rest to be in order.
    held: BinaryHeap<Reverse<Time>>,
    /// Requests in a row that were in order.
    calm: u32,
}

impl ArrivalOrder {
    /// Takes a request's arrival, and returns the earliest arrival that was not returned. `last` is
    /// the one before.
    fn next(&mut self, last: Time, arrived: Time) -> Time {
        if arrived < last && self.held.len() < MAX_HELD {
            // It should have been returned before `last`: from now on, one more is held.
            self.calm = 0;
            self.held.push(Reverse(arrived));
            return last;
        }
        self.held.push(Reverse(arrived));
        self.calm = self.calm.saturating_add(1);
        if self.calm > CALM && self.held.len() > 1 {
            self.held.pop();
        }
        self.held.pop().map_or(last, |Reverse(earliest)| earliest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_shadow_queue_drains_without_arrivals() {
        let mut queue = ShadowQueue::<()> { backlog: 1_000, ..ShadowQueue::default() };
        // Arrived long before it was read.
        let (_, delay, _) = queue.poll(Time(5_000), Time(100));
        assert_eq!(delay, Nanos(900));
        assert_eq!(queue.delay(Time(5_000)), Nanos(900));
        assert_eq!(queue.delay(Time(5_600)), Nanos(300));
        assert_eq!(queue.delay(Time(9_000)), Nanos::ZERO);
    }

    #[test]
    fn the_oldest_request_is_the_first_that_has_not_started() {
        let mut queue = ShadowQueue::default();
        for arrived in [0, 100, 200] {
            queue.poll(Time(arrived), Time(arrived));
            queue.admit(Nanos(1_000), 1, ());
        }
        assert_eq!(queue.oldest(), Nanos(100), "of the second, while the first is executed");
        queue.poll(Time(1_500), Time(1_500));
        assert_eq!(queue.oldest(), Nanos(1_300));
        queue.poll(Time(3_500), Time(3_500));
        assert_eq!(queue.oldest(), Nanos::ZERO);
    }

    /// Share of a worker's time that requests take which the queue would admit, at twice the
    /// capacity. The real server admits all and reads `run` requests of one of ten connections
    /// after the other.
    fn admitted_share(run: usize) -> f64 {
        const SERVICE: u64 = 1_000;
        const REQUESTS: u64 = 20_000;
        let (mut queue, mut admitted, mut sent) = (ShadowQueue::default(), 0, [0; 10]);
        for read in 0..REQUESTS {
            let connection = (read as usize / run * 7) % sent.len();
            let arrived = (sent[connection] * 10 + connection as u64) * SERVICE / 2;
            sent[connection] += 1;
            let (_, delay, _) = queue.poll(Time((read * SERVICE).max(arrived)), Time(arrived));
            if delay < Nanos(20 * SERVICE) {
                admitted += 1;
                queue.admit(Nanos(SERVICE), 1, ());
            }
        }
        admitted as f64 * 2.0 / REQUESTS as f64
    }

    #[test]
    fn requests_read_out_of_order_are_admitted_as_in_order() {
        let shares = [1, 2, 4, 8, 16, 32, 64].map(admitted_share);
        assert!(shares.iter().all(|share| (0.9..1.05).contains(share)), "{shares:?}");
    }

    #[test]
    fn nothing_is_held_once_requests_are_in_order_again() {
        let (mut order, mut last) = (ArrivalOrder::default(), Time::ZERO);
        let mut next = |arrived| {
            last = order.next(last, Time(arrived)).max(last);
            last
        };
        assert_eq!([10, 20, 15, 12, 30].map(&mut next), [10, 20, 20, 20, 20].map(Time));
        let in_order = (31..40 + u64::from(CALM)).map(next).last();
        assert_eq!(in_order, Some(Time(39 + u64::from(CALM))));
        assert_eq!(order.held.len(), 0);
    }

    #[test]
    fn requests_leave_in_the_order_of_completion() {
        let mut queue = ShadowQueue::default();
        queue.poll(Time(10), Time(10));
        queue.admit(Nanos(400), 2, 'a');
        queue.admit(Nanos(50), 2, 'b');
        let (_, delay, ended) = queue.poll(Time(300), Time(300));
        assert_eq!(
            (delay, ended.iter().map(|request| (request.token, request.end, request.sojourn)).collect::<Vec<_>>()),
            (Nanos::ZERO, vec![('b', Time(260), Nanos(250))])
        );
        assert_eq!(queue.poll(Time(900), Time(900)).2.len(), 1);
    }

    #[test]
    fn the_enforced_share_is_accurate_and_grows_by_inclusion() {
        for percent in [0, 5, 50, 100] {
            let enforced = (0..10_000).filter(|number| is_enforced(percent, *number)).count();
            assert!(enforced.abs_diff(usize::from(percent) * 100) < 150, "{enforced} of 10,000 at {percent} %");
        }
        assert!((0..10_000).all(|number| is_enforced(50, number) || !is_enforced(5, number)));
    }
}
