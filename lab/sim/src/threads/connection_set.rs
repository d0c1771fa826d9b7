//! A set of connections that threads watch: unread messages, sleeping and polling threads, and the
//! set's lock.
//!
//! Polls are arithmetic: a poller finds an arrival at the end of the first poll that begins after
//! it.

use super::event::ThreadId;
use super::lock::Lock;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// Connections of a front, or links to leaves; `T` is the type of message.
#[derive(Debug)]
pub(super) struct ConnectionSet<T> {
    /// Unread messages, oldest first.
    pub(super) unread: VecDeque<T>,
    /// Threads that sleep here. The first waits for messages, the others wait to be promoted.
    pub(super) sleepers: VecDeque<ThreadId>,
    /// Threads that poll here, each on its own CPU.
    pub(super) pollers: Vec<ThreadId>,
    pub(super) lock: Lock,
    /// Whether a thread was woken for a message and has not polled yet.
    pub(super) notified: bool,
    /// Whether an event is scheduled at which a poller finds the messages.
    pub(super) poll_scheduled: bool,
    /// Time at which the present set of pollers began.
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

    /// Adds a poller.
    pub(super) fn start_polling(&mut self, thread: ThreadId, now: Time) {
        self.pollers.push(thread);
        self.phase = now;
    }

    /// Removes a poller.
    pub(super) fn stop_polling(&mut self, thread: ThreadId, now: Time) {
        if let Some(index) = self.pollers.iter().position(|poller| *poller == thread) {
            self.pollers.remove(index);
            self.phase = now;
        }
    }

    /// Length of one poll: its own cost, and one cache-line transfer for each other poller of the
    /// lock.
    fn poll_length(&self, poll: Nanos, line: Nanos) -> Nanos {
        poll + line * (self.pollers.len() as u64).saturating_sub(1)
    }

    /// Time at which a poller finds a message that arrives at `now`: the end of the first poll that
    /// begins after it.
    pub(super) fn found_at(&self, now: Time, poll: Nanos, line: Nanos) -> Time {
        let length = self.poll_length(poll, line).0;
        if length == 0 { now } else { now + Nanos((length - now.since(self.phase).0 % length) % length + length) }
    }

    /// Rest of the poll under way at `now`; zero without pollers.
    pub(super) fn poll_remaining(&self, now: Time, poll: Nanos, line: Nanos) -> Nanos {
        let length = self.poll_length(poll, line).0;
        if length == 0 || self.pollers.is_empty() {
            Nanos::ZERO
        } else {
            Nanos(length - now.since(self.phase).0 % length)
        }
    }
}
