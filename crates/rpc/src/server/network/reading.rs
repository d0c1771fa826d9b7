//! Reading connections: whose turn it is, how much of it, and how long what came has waited.

use super::{CoreNetwork, LISTENER, Limits, PARKED, Ready, WAKER};
use crate::server::connection::{Connection, ConnectionId, State};
use crate::server::execute::Execute;
use crate::server::receive::{Came, Received};
use crate::wire::{Decoder, ErrorCode, Side, WireError};
use leeward_batch::SOCKETS;
use leeward_control::units::{Nanos, Time};
use mio::{Events, Token};
use std::io;
use std::os::fd::AsFd;

/// Frames of one connection that one look handles: one that has a megabyte buffered would else keep the others waiting.
const FRAMES_PER_LOOK: usize = 256;

/// Whole frames of a connection that were not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// It is the others' turn.
    ForLater,
    /// The connection is not to be read.
    HeldBack,
}

impl<H: Execute> CoreNetwork<H> {
    /// Has a connection read at the next look at the network: once, however often this is asked.
    pub(super) fn read_later(&mut self, slot: u32) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && !connection.unread
        {
            connection.unread = true;
            self.unread.push(ConnectionId { slot, tenant: connection.tenant });
        }
    }

    /// Reads what was put off.
    pub(super) fn read_now(&mut self, id: ConnectionId, now: Time) {
        // Another may have its place by now.
        if let Some(connection) = &mut self.connections[id.slot as usize]
            && connection.tenant == id.tenant
        {
            connection.unread = false;
            self.read(id.slot, now);
        }
    }

    /// Reads those that are to be read now in one system call, if the kernel can and there are several. What came waits in
    /// their decoders until it is their turn, in [`CoreNetwork::read`].
    pub(super) fn read_ahead(&mut self, unread: &[ConnectionId], events: &Events) {
        let Some(batch) = &mut self.receiver.batch else { return };
        let put_off = unread.iter().map(|id| id.slot as usize);
        let readable = events.iter().filter(|event| Ready::from(*event).readable).map(|event| event.token());
        let found = readable.filter(|token| ![WAKER, LISTENER, PARKED].contains(token)).map(|Token(slot)| slot);
        let (mut slots, mut rooms, mut count) = ([0; SOCKETS], [0; SOCKETS], 0);
        for slot in put_off.chain(found) {
            let connection = self.connections.get_mut(slot).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|connection| connection.may_be_read_ahead(&self.limits)) else {
                continue;
            };
            if count < SOCKETS && !slots[..count].contains(&slot) {
                (slots[count], rooms[count]) = (slot, connection.decoder.spare().len().min(leeward_batch::ROOM));
                count += 1;
            }
        }
        if count < 2 {
            return;
        }
        let socket = |slot: usize| self.connections[slot].as_ref().map(|connection| connection.stream.as_fd());
        let Some(first) = socket(slots[0]) else { return };
        // Places beyond `count` are there for the array's sake and not asked for.
        let sockets: [_; SOCKETS] = std::array::from_fn(|at| (socket(slots[at]).unwrap_or(first), rooms[at]));
        batch.receive(&sockets[..count]);
        for at in 0..count {
            let Some(connection) = &mut self.connections[slots[at]] else { continue };
            connection.read_ahead(rooms[at], batch.received(at));
            // Known before the first decision that it bears on.
            if let Some(Ok(Received { waited, .. })) = &connection.ahead
                && !connection.held_back
            {
                self.found = self.found.max(waited.unwrap_or(Nanos::ZERO));
            }
        }
        if batch.is_broken() {
            self.receiver.batch = None;
        }
        if self.found > Nanos::ZERO {
            self.shared.packets.publish(self.index, self.looked, self.found, true);
        }
    }

    /// Reads a connection once and handles what came.
    pub(super) fn read(&mut self, slot: u32, now: Time) {
        let ahead = self.connections[slot as usize].as_mut().and_then(|connection| connection.ahead.take());
        if let Some(outcome) = ahead {
            return self.came(slot, outcome, now);
        }
        if self.connections[slot as usize].as_ref().is_some_and(|connection| connection.decoder.buffered() > 0) {
            // Besides the beginning of a frame these may be frames that were left behind.
            if self.handle_frames(slot, now, Nanos::ZERO) == Left::ForLater {
                return;
            }
        }
        let may_read = self.may_read(slot);
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        if connection.state == State::Ending {
            return self.discard(slot, now);
        }
        if !may_read {
            connection.held_back = true;
            // Its end is not seen as long as it is not read, but nothing can be sent to it any more.
            if connection.is_broken() {
                self.close(slot, now);
            }
            return;
        }
        let outcome = connection.read(&mut self.receiver);
        self.came(slot, outcome, now);
    }

    fn came(&mut self, slot: u32, outcome: io::Result<Received>, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        match outcome {
            Ok(Received { came, waited, .. }) => {
                connection.heard = now;
                // An end that came together with the last bytes is no event of its own: only reading finds it.
                let more = came == Came::More || (connection.hung_up && came != Came::End);
                connection.readable = more;
                // What waited because this connection was not to be read says nothing about the server's queues, and
                // must not cost others: a client that is paused would else make the controller think of overload.
                let waited = if connection.held_back { Nanos::ZERO } else { waited.unwrap_or(self.unseen) };
                connection.held_back &= more;
                if waited > self.found {
                    // Known before the first decision that it bears on.
                    self.found = waited;
                    self.shared.packets.publish(self.index, now, waited, true);
                }
                let _ = self.handle_frames(slot, now, waited);
                if came == Came::End {
                    self.hear_end(slot, now);
                } else if more {
                    self.read_later(slot);
                }
            }
            Err(_) => self.close(slot, now),
        }
    }

    /// The peer sends nothing more. One that has deregistered may still be owed answers (docs/protocol.md, "The life of a
    /// connection").
    fn hear_end(&mut self, slot: u32, now: Time) {
        match &self.connections[slot as usize] {
            Some(connection) if connection.state == State::Leaving => self.flush(slot, now),
            _ => self.close(slot, now),
        }
    }

    /// Handles the frames that are whole, as long as the connection may be read: what one read brings can be more than
    /// a connection may have unanswered. The rest stays where it is.
    fn handle_frames(&mut self, slot: u32, now: Time, waited: Nanos) -> Left {
        // Taken out, so that handling a frame that is borrowed from its decoder can use the rest of the core.
        let Some(mut connection) = self.connections[slot as usize].take() else { return Left::Nothing };
        let mut decoder = std::mem::replace(&mut connection.decoder, Decoder::new(Side::Client, self.limits.payload));
        self.connections[slot as usize] = Some(connection);
        let mut left = Left::Nothing;
        let mut handled = 0;
        let fatal = loop {
            if !self.may_read(slot) {
                left = Left::HeldBack;
                break None;
            }
            if handled == FRAMES_PER_LOOK {
                left = Left::ForLater;
                break None;
            }
            handled += 1;
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    if let Err(fatal) = self.handle_frame(slot, &frame, now, waited) {
                        break Some(fatal);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some((code_of(&error), error.to_string())),
            }
        };
        if let Some(connection) = &mut self.connections[slot as usize] {
            // Frames that are left count as unread.
            connection.readable |= left != Left::Nothing;
            connection.held_back |= left == Left::HeldBack;
            connection.frame_since = match left {
                Left::Nothing if decoder.buffered() == 0 => None,
                // The last look was at the frame that is not whole.
                Left::Nothing if handled > 1 => Some(now),
                Left::Nothing => connection.frame_since.or(Some(now)),
                Left::ForLater | Left::HeldBack => None,
            };
            connection.decoder = decoder;
        }
        if left == Left::ForLater {
            self.read_later(slot);
        }
        if let Some((code, words)) = fatal {
            self.end_with(slot, now, code, &words);
        }
        left
    }

    pub(super) fn may_read(&self, slot: u32) -> bool {
        self.connections[slot as usize].as_ref().is_some_and(|connection| connection.may_be_read(&self.limits))
    }

    /// Whether no connection is named twice; those that have gone don't matter.
    pub(super) fn are_distinct(&self, ids: &[ConnectionId]) -> bool {
        let is_here = |id: &&ConnectionId| {
            self.connections[id.slot as usize].as_ref().is_some_and(|connection| connection.tenant == id.tenant)
        };
        ids.iter().filter(is_here).count() <= self.connections.len() - self.free.len()
    }
}

impl Connection {
    /// Whether bytes that come are to be taken from the socket.
    fn may_be_read(&self, limits: &Limits) -> bool {
        self.state != State::Ending
            && !self.enforcement.is_paused()
            && self.unanswered.len() < limits.unanswered
            && self.unsent() < limits.unsent
    }

    /// Whether reading it is all there is to do before its frames can be handled.
    fn may_be_read_ahead(&self, limits: &Limits) -> bool {
        self.decoder.buffered() == 0 && self.ahead.is_none() && self.may_be_read(limits)
    }
}

fn code_of(error: &WireError) -> ErrorCode {
    match error {
        WireError::Version { .. } => ErrorCode::Version,
        WireError::PayloadTooLarge { .. } => ErrorCode::TooLarge,
        _ => ErrorCode::Malformed,
    }
}
