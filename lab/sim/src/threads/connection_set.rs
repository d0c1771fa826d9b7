//! A set of connections that threads watch: what has come, who sleeps there, who polls there, and the lock around it. Polls are
//! arithmetic: an arrival is found at the end of the look that begins after it.

use super::event::ThreadId;
use super::lock::Lock;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// Connections of a front, or links to leaves; `T` is what comes over them.
#[derive(Debug)]
pub(super) struct ConnectionSet<T> {
    /// Messages that have come and that nobody has taken, oldest first.
    pub(super) unread: VecDeque<T>,
    /// Threads that sleep here. The first waits for messages, the others for a call of the one before.
    pub(super) sleepers: VecDeque<ThreadId>,
    /// Threads that poll here, on a CPU each.
    pub(super) pollers: Vec<ThreadId>,
    pub(super) lock: Lock,
    /// A thread has been woken for what has come and has not looked yet.
    pub(super) notified: bool,
    /// An event will tell when a poller sees what has come.
    pub(super) poll_scheduled: bool,
    /// When the present pollers began.
    phase: Time,
}

impl<T> ConnectionSet<T> {
    pub(super) fn new() -> Self {
        ConnectionSet {
            unread: VecDeque::new(),
            sleepers: VecDeque::new(),
            pollers: Vec::new(),
            lock: Lock::default(),
            notified: false,
            poll_scheduled: false,
            phase: Time::ZERO,
        }
    }

    /// A thread begins to poll.
    pub(super) fn start_polling(&mut self, thread: ThreadId, now: Time) {
        self.pollers.push(thread);
        self.phase = now;
    }

    /// A thread polls no more.
    pub(super) fn stop_polling(&mut self, thread: ThreadId, now: Time) {
        if let Some(place) = self.pollers.iter().position(|poller| *poller == thread) {
            self.pollers.remove(place);
            self.phase = now;
        }
    }

    /// Length of a poller's turn: a look, and the lock's line once for each that spins on it.
    fn poll_length(&self, look: Nanos, line: Nanos) -> Nanos {
        look + line * (self.pollers.len() as u64).saturating_sub(1)
    }

    /// When a poller sees what has come at `now`: the first look that begins after it must end.
    pub(super) fn found_at(&self, now: Time, look: Nanos, line: Nanos) -> Time {
        let turn = self.poll_length(look, line).0;
        if turn == 0 { now } else { now + Nanos((turn - now.since(self.phase).0 % turn) % turn + turn) }
    }

    /// How long the look that is under way at `now` lasts; nothing without pollers.
    pub(super) fn poll_remaining(&self, now: Time, look: Nanos, line: Nanos) -> Nanos {
        let turn = self.poll_length(look, line).0;
        if turn == 0 || self.pollers.is_empty() { Nanos::ZERO } else { Nanos(turn - now.since(self.phase).0 % turn) }
    }
}
