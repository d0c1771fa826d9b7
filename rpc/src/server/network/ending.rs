//! How connections end: what they are told, and what is still read so that they hear it.

use super::{CoreNetwork, add};
use crate::server::connection::{Connection, State};
use crate::server::execute::Execute;
use crate::wire::{ErrorCode, Fatal, Frame, Message as Text};
use leeward_control::units::Time;

impl<H: Execute> CoreNetwork<H> {
    /// Ends a connection at once. Its session's window goes back to the pool, exactly once.
    pub(super) fn close(&mut self, slot: u32, now: Time) {
        let Some(mut connection) = self.connections[slot as usize].take() else { return };
        let _ = self.poll.registry().deregister(&mut connection.stream);
        self.abandon(&mut connection, now);
        add(&self.common.counters[self.index].connections, 1u64.wrapping_neg());
        self.handler.closed(slot);
        self.tenants[slot as usize] = self.tenants[slot as usize].wrapping_add(1);
        self.free.push(slot);
    }

    /// No more answers will be sent: gives the window back, and counts the calls that nobody will hear of.
    pub(super) fn abandon(&mut self, connection: &mut Connection, now: Time) {
        if let Some(mut session) = connection.session.take() {
            self.admission.close(&mut session, now);
        }
        add(&self.common.counters[self.index].abandoned, connection.unanswered.len() as u64);
        connection.unanswered.clear();
    }

    /// Says why, sends what can be sent, and ends the connection. The error is the last frame, and the window goes back
    /// at once even if the peer does not take it.
    pub(super) fn end_with(&mut self, slot: u32, now: Time, code: ErrorCode, words: &str) {
        let Some(mut connection) = self.connections[slot as usize].take() else { return };
        if connection.state != State::Ending {
            connection.state = State::Ending;
            self.abandon(&mut connection, now);
            let _ = connection.append(&Frame::Error(Fatal { code, message: Text::new(words) }));
        }
        self.connections[slot as usize] = Some(connection);
        self.flush(slot, now);
    }

    /// Ends connections that are silent or don't read, and pauses that are over.
    pub(super) fn sweep(&mut self, now: Time) {
        for slot in 0..self.connections.len() as u32 {
            let Some(connection) = &mut self.connections[slot as usize] else { continue };
            let pause_is_over = connection.enforcement.swept();
            if connection.stuck_since.is_some_and(|since| now.since(since) > self.limits.stuck) {
                self.close(slot, now);
            } else if now.since(connection.heard) > self.limits.silence && connection.unanswered.is_empty() {
                self.end_with(slot, now, ErrorCode::Timeout, "nothing has come for too long");
            } else if pause_is_over {
                self.read_later(slot);
            }
        }
        // Out of descriptors, the listener says nothing more by itself.
        self.accept(now);
    }
}
