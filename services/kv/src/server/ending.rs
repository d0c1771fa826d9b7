//! How connections end: after a client's `quit`, after nonsense, by limits, and when the server stops.

use super::network::CoreNetwork;
use super::shared::add;
use leeward_control::units::{Nanos, Time};
use leeward_rpc::server::parts::{Farewell, discard};
use std::net::Shutdown;

/// A connection that has been told its last word has this long to take it and to end its own half.
const LINGER: Nanos = Nanos::from_secs(1);
/// Bytes that are read and thrown away meanwhile.
const DISCARDED: usize = 1 << 22;
/// Connections of a core that may linger; the others end at once.
const LINGERING: usize = 256;

impl CoreNetwork {
    /// Ends a connection at once.
    pub(super) fn close(&mut self, slot: u32, now: Time) {
        let Some(mut connection) = self.connections[slot as usize].take() else { return };
        let _ = self.poll.registry().deregister(&mut connection.stream);
        self.admission.close(&mut connection.session, now);
        let counters = &self.common.counters[self.index];
        add(&counters.connections, 1u64.wrapping_neg());
        if connection.in_flight && connection.ticket.is_some() {
            add(&counters.abandoned, 1);
        }
        self.ending -= usize::from(connection.ending_since.is_some());
        self.tenants[slot as usize] = self.tenants[slot as usize].wrapping_add(1);
        self.free.push(slot);
    }

    /// Whether there are as many connections as there may be. Those that linger are others' past, but only so many of them.
    pub(super) fn are_too_many(&self) -> bool {
        self.connections.len() - self.free.len() - self.ending.min(LINGERING) >= self.limits.connections
    }

    /// Says nothing after `words`, sends what can be sent, and ends the connection.
    pub(super) fn end_with(&mut self, slot: u32, now: Time, words: &[u8]) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        if connection.ending_since.is_none() {
            connection.ending_since = Some(now);
            connection.out.bytes().extend_from_slice(words);
            self.ending += 1;
        }
        self.flush(slot, now);
    }

    /// Ends a connection that owes nothing more. It goes on listening for a moment: closing with unread bytes would reset
    /// the connection, and what it was told could be lost with it.
    pub(super) fn part(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        if self.ending <= LINGERING && !connection.has_ended && connection.stream.shutdown(Shutdown::Write).is_ok() {
            self.discard(slot, now);
        } else {
            self.close(slot, now);
        }
    }

    /// Reads what comes from a connection that is ending and throws it away, up to its end.
    pub(super) fn discard(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let left = discard(&connection.stream, &mut connection.discarded, DISCARDED);
        connection.has_ended |= left == Farewell::End;
        match left {
            Farewell::More => {}
            // It may still take what is left for it.
            Farewell::End if connection.unsent() > 0 || connection.in_flight => {}
            Farewell::End | Farewell::Enough => self.close(slot, now),
        }
    }

    /// Ends connections that are silent, stuck in a request, or don't read.
    pub(super) fn sweep(&mut self, now: Time) {
        for slot in 0..self.connections.len() as u32 {
            let may_read = self.may_read(slot);
            let Some(connection) = &mut self.connections[slot as usize] else { continue };
            if !may_read {
                // The rest of its request may be there.
                connection.part_since = connection.part_since.map(|_| now);
            }
            let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
            let ending = if connection.unsent() > 0 { self.limits.stuck } else { LINGER };
            let is_idle = !connection.in_flight && connection.unsent() == 0 && connection.ending_since.is_none();
            let silent_for = now.since(connection.heard);
            if longer(connection.out.stuck_since(), self.limits.stuck) || longer(connection.ending_since, ending) {
                self.close(slot, now);
            } else if longer(connection.part_since, self.limits.part) {
                self.end_with(slot, now, b"CLIENT_ERROR the request has taken too long\r\n");
            } else if is_idle && self.limits.silence.is_some_and(|silence| silent_for > silence) {
                self.end_with(slot, now, b"");
            }
        }
        // Out of descriptors, the listener says nothing more by itself.
        self.accept(now);
    }
}
