//! Which connections a core reads and writes next, besides what its poll says; and how long
//! messages wait until they are read. Pure: no socket, and time is an argument.

use crate::job::ConnectionId;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// A core's lists of connections.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// Connections that may hold unread bytes. Each once, or a client that always sends more would
    /// be read more and more often.
    unread: VecDeque<ConnectionId>,
    /// Places of connections with bytes to send.
    dirty: Vec<u32>,
    dirty_since: Time,
}

/// The lists that have a connection.
#[derive(Debug, Default)]
pub(crate) struct ListFlags {
    is_unread: bool,
    is_dirty: bool,
}

impl ListFlags {
    /// Whether the next poll reads the connection.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Whether the connection waits to be flushed.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The connection is read.
    #[inline]
    pub(crate) fn read(&mut self) {
        self.is_unread = false;
    }

    /// The connection is flushed. Whether it waited for that.
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

    /// Has a connection read at the next poll: once, however often this is asked.
    #[inline]
    pub(crate) fn read_later(&mut self, listed: &mut ListFlags, id: ConnectionId) {
        if !listed.is_unread {
            listed.is_unread = true;
            self.unread.push_back(id);
        }
    }

    /// Moves the first `most` connections that are to be read into `turns`. The others come first
    /// at the next poll: a crowd would else make one poll a long one.
    #[inline]
    pub(crate) fn take_unread(&mut self, most: usize, turns: &mut Vec<ConnectionId>) {
        let most = self.unread.len().min(most);
        turns.extend(self.unread.drain(..most));
    }

    /// Whether connections are to be read.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    // ---- writing ----

    /// Has a connection flushed with others.
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

    /// Places of connections that wait to be flushed. A place with a new connection may be in it
    /// twice.
    #[inline]
    pub(crate) fn dirty(&self) -> &[u32] {
        &self.dirty
    }

    /// Takes a place from the end of [`Readiness::dirty`].
    #[inline]
    pub(crate) fn pop_dirty(&mut self) -> Option<u32> {
        self.dirty.pop()
    }

    /// How long the first of those connections has waited.
    #[inline]
    pub(crate) fn dirty_for(&self, now: Time) -> Nanos {
        now.since(self.dirty_since)
    }
}

/// Waits of a core's messages until it reads them.
#[derive(Debug, Default)]
pub(crate) struct PollWaits {
    /// Longest wait that a message may have had where the kernel does not say: since the last poll.
    unseen: Nanos,
    polled: Time,
    /// When the core last woke from a sleep.
    woke: Time,
    /// The longest wait found by the poll under way.
    found: Nanos,
}

impl PollWaits {
    /// A poll begins: `awake` if the core has not slept for it.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, awake: bool) {
        // After a sleep what is there has just come.
        self.unseen = if awake { now.since(self.polled) } else { Nanos::ZERO };
        if !awake {
            self.woke = now;
        }
        self.polled = now;
        self.found = Nanos::ZERO;
    }

    /// A message has waited for so long. The wait that counts, if it is the longest of this poll.
    #[inline]
    pub(crate) fn note(&mut self, waited: Nanos, now: Time) -> Option<Nanos> {
        // While the core slept, nothing was ahead of the message: that is no queueing delay.
        let waited = waited.min(now.since(self.woke));
        if waited > self.found {
            self.found = waited;
            return Some(waited);
        }
        None
    }

    /// Longest wait of a message for which the kernel has no timestamp.
    #[inline]
    pub(crate) fn unseen(&self) -> Nanos {
        self.unseen
    }

    /// When the last poll began.
    #[inline]
    pub(crate) fn polled(&self) -> Time {
        self.polled
    }

    /// The longest wait found by the poll under way.
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
    fn the_first_dirty_connection_tells_how_long_they_wait() {
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
    fn a_wait_counts_since_the_core_woke_and_the_longest_is_found_once() {
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
