//! Writing what several connections have for their peers in one system call.

use super::CoreNetwork;
use crate::server::execute::Execute;
use leeward_batch::SOCKETS;
use leeward_control::units::Time;
use std::os::fd::AsFd;

impl<H: Execute> CoreNetwork<H> {
    /// Flushes as many of the dirty connections as can go together, if the kernel can; leaves the others dirty.
    pub(super) fn flush_together(&mut self, now: Time) {
        let mut left = self.dirty.len();
        while left > 1 && self.receiver.batch.is_some() {
            let most = left.min(SOCKETS);
            self.send_some(left - most, most, now);
            left -= most;
        }
    }

    /// Sends for those of `dirty[from..from + most]` that have something short to send.
    fn send_some(&mut self, from: usize, most: usize, now: Time) {
        let Some(batch) = &mut self.receiver.batch else { return };
        let (mut slots, mut count) = ([0; SOCKETS], 0);
        for slot in &self.dirty[from..from + most] {
            let connection = self.connections[*slot as usize].as_ref();
            let sendable =
                connection.filter(|connection| connection.dirty).and_then(|connection| connection.out.sendable());
            // A place that has a new tenant may be in the list twice.
            let is_new = !slots[..count].contains(&(*slot as usize));
            if is_new && sendable.is_some_and(|bytes| batch.put(count, bytes)) {
                slots[count] = *slot as usize;
                count += 1;
            }
        }
        if count < 2 {
            return;
        }
        let began = self.shared.clock.now();
        let socket = |slot: usize| self.connections[slot].as_ref().map(|connection| connection.stream.as_fd());
        let Some(first) = socket(slots[0]) else { return };
        // Places beyond `count` are there for the array's sake and not asked for.
        let sockets: [_; SOCKETS] = std::array::from_fn(|at| socket(slots[at]).unwrap_or(first));
        batch.send(&sockets[..count]);
        let sent: [_; SOCKETS] = std::array::from_fn(|at| batch.sent(at));
        if batch.is_broken() {
            self.receiver.batch = None;
        }
        self.count_writes(count, began);
        for (slot, sent) in slots.into_iter().zip(sent).take(count) {
            let Some(connection) = &mut self.connections[slot] else { continue };
            connection.dirty = false;
            let failed = match sent {
                Ok(bytes) => connection.took(bytes, now).is_err(),
                // No room: the write below finds that too, and notes since when.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => connection.flush(now).is_err(),
                Err(_) => true,
            };
            self.flushed(slot as u32, failed, now);
        }
    }
}
