//! The places of one core's connections.

use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::Protocol;

/// Connections by their places. Places are dense, and used again by later connections: a generation tells them apart.
pub(super) struct ConnectionTable<P: Protocol, S> {
    slots: Vec<Option<Peer<P, S>>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<P: Protocol, S> ConnectionTable<P, S> {
    pub(super) fn new() -> Self {
        ConnectionTable { slots: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }

    /// A place for a connection that is about to come, or is [released](Peers::release).
    pub(super) fn reserve(&mut self) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            self.slots.len() as u32 - 1
        });
        ConnectionId { slot, generation: self.generations[slot as usize] }
    }

    /// Puts a connection at the place that was reserved for it.
    pub(super) fn put(&mut self, peer: Peer<P, S>) {
        let slot = peer.id.slot as usize;
        self.slots[slot] = Some(peer);
    }

    /// The place's connection, whose place is then to be [released](Peers::release).
    pub(super) fn take(&mut self, slot: u32) -> Option<Peer<P, S>> {
        self.slots[slot as usize].take()
    }

    /// Gives a place back that has no connection any more.
    pub(super) fn release(&mut self, id: ConnectionId) {
        let generation = &mut self.generations[id.slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
    }

    /// The connection at a place, whichever it is.
    pub(super) fn get_slot(&mut self, slot: u32) -> Option<&mut Peer<P, S>> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// This very connection, unless it has gone.
    pub(super) fn get(&mut self, id: ConnectionId) -> Option<&mut Peer<P, S>> {
        self.get_slot(id.slot).filter(|peer| peer.id == id)
    }

    /// The connection at a place, to look at.
    pub(super) fn peek(&self, slot: usize) -> Option<&Peer<P, S>> {
        self.slots.get(slot).and_then(Option::as_ref)
    }

    /// How many places there have ever been at once.
    pub(super) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// How many connections there are.
    pub(super) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether any connection is so.
    pub(super) fn any(&self, is_so: impl Fn(&Peer<P, S>) -> bool) -> bool {
        self.slots.iter().flatten().any(is_so)
    }

    /// Whether no connection is named twice; those that have gone don't matter.
    pub(super) fn are_distinct(&self, ids: &[ConnectionId]) -> bool {
        let is_here = |id: &&ConnectionId| self.peek(id.slot as usize).is_some_and(|peer| peer.id == **id);
        ids.iter().filter(is_here).count() <= self.open()
    }
}
