//! The slots of one core's connections.

use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::Protocol;

/// Connections by slot. Slots are dense and reused by later connections; a generation tells these
/// apart.
pub(super) struct ConnectionTable<P: Protocol, S> {
    slots: Vec<Option<Peer<P, S>>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<P: Protocol, S> ConnectionTable<P, S> {
    pub(super) fn new() -> Self {
        ConnectionTable { slots: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }

    /// Reserves a slot for a new connection. A slot that stays unused is
    /// [released](ConnectionTable::release).
    pub(super) fn reserve(&mut self) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            self.slots.len() as u32 - 1
        });
        ConnectionId { slot, generation: self.generations[slot as usize] }
    }

    /// Puts a connection into the slot that was reserved for it.
    pub(super) fn put(&mut self, peer: Peer<P, S>) {
        let slot = peer.id.slot as usize;
        self.slots[slot] = Some(peer);
    }

    /// Takes a slot's connection. The caller then [releases](ConnectionTable::release) the slot.
    pub(super) fn take(&mut self, slot: u32) -> Option<Peer<P, S>> {
        self.slots[slot as usize].take()
    }

    /// Frees a slot that has no connection any more.
    pub(super) fn release(&mut self, id: ConnectionId) {
        let generation = &mut self.generations[id.slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
    }

    /// Returns the connection in a slot, of any generation.
    pub(super) fn get_slot(&mut self, slot: u32) -> Option<&mut Peer<P, S>> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// Returns the connection with this id, unless it has closed.
    pub(super) fn get(&mut self, id: ConnectionId) -> Option<&mut Peer<P, S>> {
        self.get_slot(id.slot).filter(|peer| peer.id == id)
    }

    /// Returns the connection in a slot for reading.
    pub(super) fn peek(&self, slot: usize) -> Option<&Peer<P, S>> {
        self.slots.get(slot).and_then(Option::as_ref)
    }

    /// Number of slots: the maximum that were in use at once.
    pub(super) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of slots in use.
    pub(super) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether any connection satisfies `is_so`.
    pub(super) fn any(&self, is_so: impl Fn(&Peer<P, S>) -> bool) -> bool {
        self.slots.iter().flatten().any(is_so)
    }

    /// Returns whether no open connection is listed twice.
    pub(super) fn are_distinct(&self, ids: &[ConnectionId]) -> bool {
        let is_here = |id: &&ConnectionId| self.peek(id.slot as usize).is_some_and(|peer| peer.id == **id);
        ids.iter().filter(is_here).count() <= self.open()
    }
}
