//! How connections end: what they are told, and what is still read so that they hear it.

use super::{CoreNetwork, add};
use crate::server::connection::{Connection, State};
use crate::server::execute::Execute;
use crate::server::farewell::{Farewell, discard};
use crate::wire::{ErrorCode, Fatal, Frame, Message as Text};
use leeward_control::units::{Nanos, Time};
use std::net::Shutdown;

/// A connection that has been told why it ends has this long to take it and to end its own half.
const LINGER: Nanos = Nanos::from_secs(1);
/// Bytes that are read and thrown away meanwhile.
const DISCARDED: usize = 1 << 20;
/// Connections of a core that may linger; the others end at once, so that nobody can hold descriptors by mistakes.
const LINGERING: usize = 256;

impl<H: Execute> CoreNetwork<H> {
    /// Ends a connection at once. Its session's window goes back to the pool, exactly once.
    pub(super) fn close(&mut self, slot: u32, now: Time) {
        let Some(mut connection) = self.connections[slot as usize].take() else { return };
        let _ = self.poll.registry().deregister(&mut connection.stream);
        self.abandon(&mut connection, now);
        add(&self.common.counters[self.index].connections, 1u64.wrapping_neg());
        self.handler.closed(slot);
        self.ending -= usize::from(connection.state == State::Ending);
        self.tenants[slot as usize] = self.tenants[slot as usize].wrapping_add(1);
        self.free.push(slot);
    }

    /// Whether there are as many connections as there may be. Those that linger are others' past, but only so many of them.
    pub(super) fn are_too_many(&self) -> bool {
        self.connections.len() - self.free.len() - self.ending.min(LINGERING) >= self.limits.connections
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
            connection.ending_since = Some(now);
            self.ending += 1;
            self.abandon(&mut connection, now);
            let _ = connection.append(&Frame::Error(Fatal { code, message: Text::new(words) }));
        }
        self.connections[slot as usize] = Some(connection);
        self.flush(slot, now);
    }

    /// Ends a connection that owes nothing more. One that has been told why goes on listening for a moment: closing with
    /// unread bytes would reset the connection, and what it was told could be lost with it.
    pub(super) fn part(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let lingers = connection.state == State::Ending && self.ending <= LINGERING;
        if lingers && connection.stream.shutdown(Shutdown::Write).is_ok() {
            self.discard(slot, now);
        } else {
            self.close(slot, now);
        }
    }

    /// Reads what comes from a connection that is ending and throws it away, up to its end.
    pub(super) fn discard(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        match discard(&connection.stream, &mut connection.discarded, DISCARDED) {
            Farewell::More => {}
            // It may still take what is left for it.
            Farewell::End if connection.unsent() > 0 => {}
            Farewell::End | Farewell::Enough => self.close(slot, now),
        }
    }

    /// Ends connections that are silent, stuck in a frame, or don't read, and pauses that are over.
    pub(super) fn sweep(&mut self, now: Time) {
        for slot in 0..self.connections.len() as u32 {
            let may_read = self.may_read(slot);
            let Some(connection) = &mut self.connections[slot as usize] else { continue };
            if !may_read {
                // The rest of its frame may be there.
                connection.frame_since = connection.frame_since.map(|_| now);
            }
            let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
            // Whether it still has to take something or only to end its half.
            let ending = if connection.unsent() > 0 { self.limits.stuck } else { LINGER };
            let pause_is_over = connection.enforcement.swept();
            if longer(connection.out.stuck_since(), self.limits.stuck) || longer(connection.ending_since, ending) {
                self.close(slot, now);
            } else if connection.state == State::Ending {
                continue;
            } else if now.since(connection.heard) > self.limits.silence && connection.unanswered.is_empty() {
                self.end_with(slot, now, ErrorCode::Timeout, "nothing has come for too long");
            } else if longer(connection.frame_since, self.limits.silence) {
                self.end_with(slot, now, ErrorCode::Timeout, "one frame has taken too long");
            } else if pause_is_over {
                self.read_later(slot);
            }
        }
        // Out of descriptors, the listener says nothing more by itself.
        self.accept(now);
    }
}
