//! Messages between cores, and new connections on their way to their cores.

use super::inbox::Inbox;
use mio::Waker;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum connections on their way to cores. No other limit counts these, so their number needs a
/// bound.
const ADOPTING: usize = 256;

/// The inboxes of all cores.
pub(crate) struct Mailboxes<M> {
    inboxes: Vec<Inbox<M, Waker>>,
    /// Connections sent by the accepting core that have not reached their own core.
    adopting: AtomicUsize,
}

impl<M> Mailboxes<M> {
    /// Makes one inbox per waker.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        Mailboxes { inboxes: wakers.into_iter().map(Inbox::new).collect(), adopting: AtomicUsize::new(0) }
    }

    /// Number of cores.
    pub(crate) fn cores(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns whether more connections may be sent to their cores.
    pub(crate) fn may_adopt(&self) -> bool {
        self.adopting.load(Ordering::Relaxed) < ADOPTING
    }

    /// Sends a connection to `core`, which calls [`Mailboxes::adopted`] when it takes the
    /// connection.
    pub(crate) fn send_adopt(&self, core: usize, message: M) {
        self.adopting.fetch_add(1, Ordering::Relaxed);
        self.send(core, message);
    }

    /// Notes that a connection has reached its core.
    pub(crate) fn adopted(&self) {
        self.adopting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Leaves a message for `core` without a wake-up. The caller wakes `core` afterwards, or reads
    /// its messages before `core` sleeps.
    pub(crate) fn leave(&self, core: usize, message: M) {
        self.inboxes[core].leave(message);
    }

    /// Leaves a message for `core` and wakes it.
    pub(crate) fn send(&self, core: usize, message: M) {
        self.inboxes[core].send(message);
    }

    /// Takes the messages for `core` into `into`, which is empty.
    pub(crate) fn receive(&self, core: usize, into: &mut Vec<M>) {
        self.inboxes[core].receive(into);
    }

    /// Wakes `core` without a message.
    pub(crate) fn wake(&self, core: usize) {
        self.inboxes[core].wake();
    }
}
