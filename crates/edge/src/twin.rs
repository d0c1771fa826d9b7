//! The queue that would be if decisions were enforced. Without it a rehearsal would see an overload that never ends, because
//! nothing of it is refused. Never here: decisions.
//!
//! Its clock is the arrival of requests at this machine, as far as their age is known: a server that drowns reads requests no faster than
//! it answers them, so that at the time of reading no overload could be seen.

use leeward_control::server;
use leeward_control::units::{Nanos, Time};
use std::collections::VecDeque;

/// Ends of requests that one look takes: whoever comes after a long silence must not do the work of thousands.
const ENDS: usize = 256;

/// Work that is ahead of the next request, in nanoseconds of all workers, and the requests that it is of.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    work: u64,
    at: Time,
    /// When it was looked at last, by the gate's clock.
    looked: Time,
    /// In the order of their ends.
    under_way: VecDeque<Leaving>,
}

/// A request that would be under way.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) at: Time,
    pub(crate) shard: usize,
    pub(crate) ticket: server::Ticket,
    pub(crate) sojourn: Nanos,
}

impl Twin {
    /// The time of a request that came then and is read now: not before that of any other; the delay that it would have met; and the
    /// requests that would have ended meanwhile.
    pub(crate) fn look(&mut self, read: Time, came: Time) -> (Time, Nanos, Vec<Leaving>) {
        self.looked = self.looked.max(read);
        let now = self.at.max(came);
        self.work = self.work.saturating_sub(now.since(self.at).0);
        self.at = now;
        let ended = self.under_way.iter().take(ENDS).take_while(|leaving| leaving.at <= now).count();
        (now, Nanos(self.work), self.under_way.drain(..ended).collect())
    }

    /// The delay that a request would meet now. It ends while nobody comes: a balancer that sends nobody here would never learn else.
    pub(crate) fn delay(&self, now: Time) -> Nanos {
        Nanos(self.work.saturating_sub(now.since(self.looked).0))
    }

    /// The request that came last, of this time on one of `workers`, would have been admitted.
    pub(crate) fn admit(&mut self, time: Nanos, workers: usize, shard: usize, ticket: server::Ticket) {
        let waits = Nanos(self.work);
        self.work = self.work.saturating_add(time.0 / workers.max(1) as u64);
        let at = self.at + waits + time;
        let sojourn = at.since(self.at);
        // A short request on another worker ends before a long one that came first.
        let place = self.under_way.partition_point(|other| other.at <= at);
        self.under_way.insert(place, Leaving { at, shard, ticket, sojourn });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_that_would_be_ends_while_nobody_comes() {
        let mut twin = Twin { work: 1_000, ..Twin::default() };
        // Came long before it was read.
        let (_, delay, _) = twin.look(Time(5_000), Time(100));
        assert_eq!(delay, Nanos(900));
        assert_eq!(twin.delay(Time(5_000)), Nanos(900));
        assert_eq!(twin.delay(Time(5_600)), Nanos(300));
        assert_eq!(twin.delay(Time(9_000)), Nanos::ZERO);
    }
}
