//! Connections that a core reads and writes next, besides those with poll events, and the waits of
//! messages until they are read. Pure: no socket, and time is an argument.

use crate::job::ConnectionId;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// A core's lists of connections.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// Connections that may hold unread bytes, each at most once. Otherwise a client that always
    /// sends more would be read more and more often.
    unread: VecDeque<ConnectionId>,
    /// Slots of connections with bytes to send.
    dirty: Vec<u32>,
    dirty_since: Time,
}

/// The lists that contain a connection.
#[derive(Debug, Default)]
pub(crate) struct ListFlags {
    is_unread: bool,
    is_dirty: bool,
}

impl ListFlags {
    /// Returns whether the next poll reads the connection.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Returns whether the connection waits for a flush.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Notes that the connection is read.
    #[inline]
    pub(crate) fn read(&mut self) {
        self.is_unread = false;
    }

    /// Notes that the connection is flushed. Returns whether it waited for that.
    #[inline]
    pub(crate) fn flush(&mut self) -> bool {
        std::mem::take(&mut self.is_dirty)
    }
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Readiness { unread: VecDeque::new(), dirty: Vec::new(), dirty_since: Time::ZERO }
    }

    // ---- reading ----

    /// Lists a connection to be read at the next poll. Listing it again has no effect.
    #[inline]
    pub(crate) fn read_later(&mut self, listed: &mut ListFlags, id: ConnectionId) {
        if !listed.is_unread {
            listed.is_unread = true;
            self.unread.push_back(id);
        }
    }

    /// Moves the first `most` unread connections into `turns`. The others come first at the next
    /// poll, so that many connections don't make one poll long.
    #[inline]
    pub(crate) fn take_unread(&mut self, most: usize, turns: &mut Vec<ConnectionId>) {
        let most = self.unread.len().min(most);
        turns.extend(self.unread.drain(..most));
    }

    /// Returns whether connections are to be read.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    // ---- writing ----

    /// Lists a connection to be flushed with others.
    #[inline]
    pub(crate) fn flush_later(&mut self, listed: &mut ListFlags, slot: u32, now: Time) {
        if !listed.is_dirty {
            listed.is_dirty = true;
            if self.dirty.is_empty() {
                self.dirty_since = now;
            }
            self.dirty.push(slot);
        }
    }

    /// Slots of connections that wait for a flush. A slot with a new connection may be in the list
    /// twice.
    #[inline]
    pub(crate) fn dirty(&self) -> &[u32] {
        &self.dirty
    }

    /// Takes a slot from the end of [`Readiness::dirty`].
    #[inline]
    pub(crate) fn pop_dirty(&mut self) -> Option<u32> {
        self.dirty.pop()
    }

    /// Time for which the first of these connections has waited; zero if there is none.
    #[inline]
    pub(crate) fn dirty_for(&self, now: Time) -> Nanos {
        if self.dirty.is_empty() { Nanos::ZERO } else { now.since(self.dirty_since) }
    }

    /// Returns whether these connections may wait for more responses, if those take `work`, so that
    /// none waits longer than `most`.
    #[inline]
    pub(crate) fn may_wait(&self, now: Time, work: Nanos, most: Nanos) -> bool {
        self.dirty_for(now) + work <= most
    }
}

/// Waits of a core's messages until they are read.
#[derive(Debug, Default)]
pub(crate) struct PollWaits {
    /// Maximum wait of a message without a kernel timestamp: the time since the last poll.
    unseen: Nanos,
    polled: Time,
    /// Time at which the core last woke.
    woke: Time,
    /// The longest wait found by the current poll.
    found: Nanos,
}

impl PollWaits {
    /// Begins a poll. `awake`: the core has not slept in it.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, awake: bool) {
        // After a sleep, pending messages have just arrived.
        self.unseen = if awake { now.since(self.polled) } else { Nanos::ZERO };
        if !awake {
            self.woke = now;
        }
        self.polled = now;
        self.found = Nanos::ZERO;
    }

    /// Notes a message's wait. Returns the wait that counts, if it is the longest of this poll.
    #[inline]
    pub(crate) fn note(&mut self, waited: Nanos, now: Time) -> Option<Nanos> {
        // While the core slept, nothing was queued ahead of the message. That is no queueing delay.
        let waited = waited.min(now.since(self.woke));
        if waited > self.found {
            self.found = waited;
            return Some(waited);
        }
        None
    }

    /// Maximum wait of a message without a kernel timestamp.
    #[inline]
    pub(crate) fn unseen(&self) -> Nanos {
        self.unseen
    }

    /// Time at which the last poll began.
    #[inline]
    pub(crate) fn polled(&self) -> Time {
        self.polled
    }

    /// The longest wait found by the current poll.
    #[inline]
    pub(crate) fn found(&self) -> Nanos {
        self.found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    #[test]
    fn each_connection_is_read_once_and_in_turn() {
        let (mut readiness, mut turns) = (Readiness::new(), Vec::new());
        let mut listed: Vec<ListFlags> = (0..5).map(|_| ListFlags::default()).collect();
        for _ in 0..2 {
            (0..5).for_each(|slot| readiness.read_later(&mut listed[slot as usize], id(slot)));
        }
        readiness.take_unread(3, &mut turns);
        assert_eq!(turns, [id(0), id(1), id(2)]);
        listed[0].read();
        readiness.read_later(&mut listed[0], id(0));
        readiness.read_later(&mut listed[1], id(1));
        assert!(listed[0].is_unread() && readiness.has_unread());
        turns.clear();
        readiness.take_unread(16, &mut turns);
        assert_eq!(turns, [id(3), id(4), id(0)], "behind those that have waited");
        assert!(!readiness.has_unread());
    }

    #[test]
    fn the_first_unflushed_connection_determines_the_flush_wait() {
        let mut readiness = Readiness::new();
        let mut listed = [ListFlags::default(), ListFlags::default()];
        readiness.flush_later(&mut listed[0], 7, Time(100));
        readiness.flush_later(&mut listed[1], 8, Time(150));
        readiness.flush_later(&mut listed[0], 7, Time(160));
        assert_eq!((readiness.dirty(), readiness.dirty_for(Time(200))), (&[7, 8][..], Nanos(100)));
        assert!(listed[1].flush() && !listed[1].flush() && listed[0].is_dirty());
        assert_eq!([readiness.pop_dirty(), readiness.pop_dirty(), readiness.pop_dirty()], [Some(8), Some(7), None]);
        readiness.flush_later(&mut listed[1], 8, Time(300));
        assert_eq!(readiness.dirty_for(Time(310)), Nanos(10));
    }

    #[test]
    fn responses_wait_for_company_that_comes_in_time() {
        let (mut readiness, mut listed) = (Readiness::new(), ListFlags::default());
        assert!(readiness.may_wait(Time(1_000), Nanos(12), Nanos(12)), "nothing waits yet");
        assert!(!readiness.may_wait(Time(1_000), Nanos(13), Nanos(12)), "the next would take too long");
        readiness.flush_later(&mut listed, 7, Time(1_000));
        assert!(readiness.may_wait(Time(1_002), Nanos(10), Nanos(12)));
        assert!(!readiness.may_wait(Time(1_003), Nanos(10), Nanos(12)), "the first has waited");
    }

    #[test]
    fn waits_count_from_the_wake_up_and_the_longest_is_reported_once() {
        let mut waits = PollWaits::default();
        waits.begin(Time(1_000), false);
        assert_eq!((waits.unseen(), waits.note(Nanos(500), Time(1_000))), (Nanos::ZERO, None));
        waits.begin(Time(1_300), true);
        assert_eq!((waits.unseen(), waits.polled()), (Nanos(300), Time(1_300)));
        assert_eq!(waits.note(Nanos(200), Time(1_300)), Some(Nanos(200)));
        assert_eq!(waits.note(Nanos(200), Time(1_300)), None);
        assert_eq!(waits.note(Nanos(900), Time(1_300)), Some(Nanos(300)), "asleep before");
        assert_eq!(waits.found(), Nanos(300));
        waits.begin(Time(1_310), true);
        assert_eq!(waits.found(), Nanos::ZERO);
    }
}
