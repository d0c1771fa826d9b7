//! Writes the pending bytes of several connections in one system call.

use super::Core;
use crate::batch::SOCKETS;
use crate::peer::Peer;
use crate::protocol::Protocol;
use crate::stream::Stream;
use leeward_core::units::Time;

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Flushes those dirty connections that can share a system call, if the kernel supports it.
    /// Others stay dirty.
    pub(super) fn flush_together(&mut self, now: Time) {
        let mut left = self.state.readiness.dirty().len();
        while left > 1 && self.state.receiver.batch.is_some() {
            let most = left.min(SOCKETS);
            self.send_some(left - most, most, now);
            left -= most;
        }
    }

    /// Sends for those of `dirty[from..from + most]` with a short output.
    fn send_some(&mut self, from: usize, most: usize, now: Time) {
        let Core { peers, state: local, .. } = self;
        let Some(batch) = &mut local.receiver.batch else { return };
        let (mut slots, mut count) = ([0; SOCKETS], 0);
        for slot in local.readiness.dirty()[from..from + most].iter().map(|slot| *slot as usize) {
            // A slot with a new connection may be in the list twice.
            if slots[..count].contains(&slot) {
                continue;
            }
            let peer = peers.get_slot(slot as u32).filter(|peer| peer.listed.is_dirty() && peer.stream.raw().is_some());
            if peer.and_then(Peer::sendable).is_some_and(|bytes| batch.put(count, bytes)) {
                slots[count] = slot;
                count += 1;
            }
        }
        if count < 2 {
            return;
        }
        let began = local.handle.shared.clock.now();
        let socket = |slot: usize| peers.peek(slot).and_then(|peer| peer.stream.raw());
        let Some(first) = socket(slots[0]) else { return };
        // Entries beyond `count` only fill the array and are not sent.
        let sockets: [_; SOCKETS] = std::array::from_fn(|at| socket(slots[at]).unwrap_or(first));
        batch.send(&sockets[..count]);
        let sent: [_; SOCKETS] = std::array::from_fn(|at| batch.sent(at));
        if batch.is_broken() {
            local.receiver.batch = None;
        }
        let bytes = sent.iter().take(count).flatten().sum();
        local.count_writes(count, bytes, began);
        for (slot, sent) in slots.into_iter().zip(sent).take(count) {
            let slot = slot as u32;
            let Some(peer) = self.peers.get_slot(slot) else { continue };
            let _ = peer.listed.flush();
            let is_well = match sent {
                Ok(bytes) => peer.finish_write(bytes, now).is_ok(),
                // The socket is full. The write below finds that too, and notes the time.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => peer.send(now, &mut None).is_ok(),
                Err(_) => false,
            };
            let outcome = self.state.after_flush(peer, is_well);
            self.apply_outcome(slot, outcome, now);
        }
    }
}
