//! Mail from core to core: messages, and connections on their way to the core that is to have them.

use super::inbox::Inbox;
use mio::Waker;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that may wait for a core that takes no messages. They count in no other limit, so their number must have
/// a bound.
const ADOPTING: usize = 256;

/// The inboxes of all cores.
pub(crate) struct Mailboxes<M> {
    inboxes: Vec<Inbox<M, Waker>>,
    /// Connections on their way from the core that has accepted them to their own.
    adopting: AtomicUsize,
}

impl<M> Mailboxes<M> {
    /// For the cores that these wake.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        Mailboxes { inboxes: wakers.into_iter().map(Inbox::new).collect(), adopting: AtomicUsize::new(0) }
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> usize {
        self.inboxes.len()
    }

    /// Whether more connections may be sent to their cores.
    pub(crate) fn may_adopt(&self) -> bool {
        self.adopting.load(Ordering::Relaxed) < ADOPTING
    }

    /// Sends a connection to `core`, which says when it has it.
    pub(crate) fn send_adopt(&self, core: usize, message: M) {
        self.adopting.fetch_add(1, Ordering::Relaxed);
        self.send(core, message);
    }

    /// A connection has come to its core.
    pub(crate) fn adopted(&self) {
        self.adopting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Leaves a message for `core`, whose mail the caller will look through before it sleeps.
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
