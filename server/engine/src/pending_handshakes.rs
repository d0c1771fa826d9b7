//! Pending handshakes of a core: connections that wait for a step of their handshake, or for their
//! client. A step costs as much as dozens of requests, and no request has asked for it: so each new
//! connection has one step per turn.
//!
//! Here is whose turn it is, what a step makes of the connection, and when it is given up. Never
//! here: how much time handshakes have (`fair_shares`), and what a handshake consists of
//! ([`crate::Encryption`]).

use crate::closing_handshake::ClosingHandshake;
use crate::encryption::{Encryption, SecureChannel, StreamWriter};
use crate::job::ConnectionId;
use crate::receive::{ReadOutcome, ReadState, SocketReader};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Ciphertext that one step reads, bytes: more than a hello, less than a long chain of
/// certificates.
const STEP: usize = 4 * 1024;
/// While all places are taken, a new connection that has sent nothing for so long makes room.
const CROWDED_TIMEOUT: Nanos = Nanos::from_millis(250);

/// Reasons to refuse a connection besides those of the encryption itself.
pub(crate) mod reason {
    /// The peer did not go on in time.
    pub(crate) const STALLED: &str = "stalled";
    /// The server had no time for it in time.
    pub(crate) const WAITED: &str = "waited";
    /// The peer has gone.
    pub(crate) const LEFT: &str = "left";
    /// The server has as many connections as it takes, or is stopping.
    pub(crate) const FULL: &str = "full";
    /// The peer speaks something else.
    pub(crate) const PLAINTEXT: &str = "plaintext";
    /// The peer's identity is not in the table of tenants, and such are refused.
    pub(crate) const UNKNOWN_IDENTITY: &str = "stranger";
}

/// Bounds of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeLimits {
    /// Time from the beginning of a connection to the end of its handshake.
    pub(crate) timeout: Nanos,
    /// Time in which a refused connection may take its reason.
    pub(crate) linger: Nanos,
    /// Bytes of a refused connection that are thrown away meanwhile.
    pub(crate) discarded: usize,
}

/// A connection whose handshake is not over.
struct PendingHandshake<S> {
    socket: S,
    id: ConnectionId,
    /// `None` before anything has come.
    channel: Option<Box<dyn SecureChannel>>,
    since: Time,
    /// When its handshake last went on: a byte now and then is no reason to keep its place.
    last_progress: Time,
    is_queued: bool,
    hung_up: bool,
    /// Poll in which it came: readiness that this poll tells of its place is another connection's.
    poll: u64,
    /// When it was refused. It may take the reason before it is closed.
    closing_since: Option<Time>,
    discarded: usize,
}

/// Fate of a connection after a step.
enum StepOutcome {
    /// Waits for its peer.
    Waits,
    /// May go on at once, after others.
    GoesOn,
    /// The handshake is over.
    Done,
    /// Speaks something else.
    Plaintext,
    /// Refused without a word.
    Closed(&'static str),
    /// Refused, and takes the reason.
    Refused(&'static str),
}

/// A connection whose handshake is over.
pub(crate) struct EstablishedConnection<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
    pub(crate) channel: Box<dyn SecureChannel>,
    /// Whether the poll has said that the peer sends nothing more.
    pub(crate) hung_up: bool,
}

/// A connection that is to be closed.
pub(crate) struct ClosedConnection<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
}

/// Outcome of a turn. A connection that it holds is no longer pending.
pub(crate) enum HandshakeOutcome<S> {
    /// The handshake goes on.
    Pending,
    Done(EstablishedConnection<S>),
    /// The peer speaks something else, and is told so by its protocol.
    Plaintext(ClosedConnection<S>),
    /// The connection is refused now, for this reason, or was refused before. Without a connection
    /// it takes its reason first.
    Refused(Option<&'static str>, Option<ClosedConnection<S>>),
}

/// Pending handshakes of a core.
pub(crate) struct PendingHandshakes<S> {
    pending: BTreeMap<u32, PendingHandshake<S>>,
    /// Connections with something to read, in turn.
    ready: VecDeque<ConnectionId>,
    poll: u64,
    limits: HandshakeLimits,
}

impl<S: Stream> PendingHandshakes<S> {
    pub(crate) fn new(limits: HandshakeLimits) -> Self {
        PendingHandshakes { pending: BTreeMap::new(), ready: VecDeque::new(), poll: 0, limits }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.pending.len()
    }

    /// The poll has been asked: places that are given from now on have no part in its answer.
    pub(crate) fn begin_poll(&mut self) {
        self.poll += 1;
    }

    /// Whether a connection waits for a step.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a connection.
    pub(crate) fn add(&mut self, id: ConnectionId, socket: S, now: Time) {
        let pending = PendingHandshake {
            socket,
            id,
            channel: None,
            since: now,
            last_progress: now,
            is_queued: false,
            hung_up: false,
            poll: self.poll,
            closing_since: None,
            discarded: 0,
        };
        self.pending.insert(id.slot, pending);
    }

    /// The poll tells of the socket at a place.
    pub(crate) fn ready(&mut self, slot: u32, readable: bool, writable: bool, hung_up: bool) {
        let poll = self.poll;
        let Some(pending) = self.pending.get_mut(&slot).filter(|pending| pending.poll != poll) else { return };
        pending.hung_up |= hung_up;
        let wants_send = pending.channel.as_ref().is_some_and(|channel| channel.wants_send());
        if readable || (writable && wants_send) {
            self.queue(slot);
        }
    }

    fn queue(&mut self, slot: u32) {
        if let Some(pending) = self.pending.get_mut(&slot)
            && !pending.is_queued
        {
            pending.is_queued = true;
            self.ready.push_back(pending.id);
        }
    }

    /// Gives the next connection its turn: one step. `None` if none waits.
    pub(crate) fn step_next(
        &mut self,
        encryption: &dyn Encryption,
        receiver: &mut SocketReader,
        now: Time,
    ) -> Option<HandshakeOutcome<S>> {
        let id = self.ready.pop_front()?;
        let limits = self.limits;
        let Some(pending) = self.pending.get_mut(&id.slot).filter(|pending| pending.id == id) else {
            return Some(HandshakeOutcome::Pending);
        };
        pending.is_queued = false;
        if pending.closing_since.is_some() {
            let left = pending.socket.discard(&mut pending.discarded, limits.discarded);
            let closed = if left == ClosingHandshake::Pending { None } else { self.remove(id.slot) };
            return Some(HandshakeOutcome::Refused(None, closed));
        }
        let mut scratch = receiver.borrow_scratch();
        let received = pending.socket.receive(receiver, &mut scratch[..STEP]);
        let step = match received {
            Err(_) => StepOutcome::Closed(reason::LEFT),
            Ok(received) => pending.step(received, &scratch[..received.bytes], encryption, limits.timeout, now),
        };
        receiver.give_back(scratch);
        Some(self.outcome(id.slot, step, now))
    }

    fn outcome(&mut self, slot: u32, step: StepOutcome, now: Time) -> HandshakeOutcome<S> {
        match step {
            StepOutcome::Waits => HandshakeOutcome::Pending,
            StepOutcome::GoesOn => {
                self.queue(slot);
                HandshakeOutcome::Pending
            }
            StepOutcome::Done => match self.pending.remove(&slot) {
                Some(PendingHandshake { socket, id, channel: Some(channel), hung_up, .. }) => {
                    HandshakeOutcome::Done(EstablishedConnection { id, socket, channel, hung_up })
                }
                // A handshake without a channel is never done.
                _ => HandshakeOutcome::Pending,
            },
            StepOutcome::Plaintext => self.remove(slot).map_or(HandshakeOutcome::Pending, HandshakeOutcome::Plaintext),
            StepOutcome::Closed(reason) => HandshakeOutcome::Refused(Some(reason), self.remove(slot)),
            StepOutcome::Refused(reason) => {
                let Some(pending) = self.pending.get_mut(&slot) else { return HandshakeOutcome::Pending };
                pending.closing_since = Some(now);
                let left = pending.socket.discard(&mut pending.discarded, self.limits.discarded);
                let is_over = pending.socket.shutdown().is_err() || left != ClosingHandshake::Pending;
                HandshakeOutcome::Refused(Some(reason), if is_over { self.remove(slot) } else { None })
            }
        }
    }

    fn remove(&mut self, slot: u32) -> Option<ClosedConnection<S>> {
        self.pending.remove(&slot).map(|PendingHandshake { id, socket, .. }| ClosedConnection { id, socket })
    }

    /// Gives up connections whose time is over, and on a crowded server those that keep it waiting:
    /// each with its reason, unless it was refused before.
    pub(crate) fn scan(&mut self, is_crowded: bool, now: Time) -> Vec<(Option<&'static str>, ClosedConnection<S>)> {
        let HandshakeLimits { timeout: patience, linger, .. } = self.limits;
        let mut over = Vec::new();
        for (slot, pending) in &self.pending {
            let stalls = !pending.is_queued && is_crowded && now.since(pending.last_progress) > CROWDED_TIMEOUT;
            match pending.closing_since {
                Some(since) if now.since(since) > linger || is_crowded => over.push((*slot, None)),
                None if stalls || now.since(pending.since) > patience => {
                    over.push((*slot, Some(if pending.is_queued { reason::WAITED } else { reason::STALLED })));
                }
                _ => {}
            }
        }
        over.into_iter().filter_map(|(slot, reason)| Some((reason, self.remove(slot)?))).collect()
    }

    /// Takes all connections: the server stops.
    pub(crate) fn close(&mut self) -> Vec<ClosedConnection<S>> {
        let slots: Vec<u32> = self.pending.keys().copied().collect();
        slots.into_iter().filter_map(|slot| self.remove(slot)).collect()
    }
}

impl<S: Stream> PendingHandshake<S> {
    /// Goes on with the handshake after `received`.
    fn step(
        &mut self,
        received: ReadOutcome,
        ciphertext: &[u8],
        encryption: &dyn Encryption,
        patience: Nanos,
        now: Time,
    ) -> StepOutcome {
        match received.state {
            ReadState::End => return StepOutcome::Closed(reason::LEFT),
            // Perhaps there is room for the words that are left.
            ReadState::Empty => return self.send(StepOutcome::Waits),
            ReadState::Drained | ReadState::More => {}
        }
        let has_begun = self.channel.is_some();
        // Of a hello that is as old as that the client has given up, or is about to.
        let age = now.since(self.since) + received.wait.unwrap_or(Nanos::ZERO);
        if self.channel.is_none() {
            match ciphertext.first() {
                Some(first) if !encryption.recognises(*first) => return StepOutcome::Plaintext,
                _ if age > patience => return StepOutcome::Closed(reason::WAITED),
                _ if self.hung_up => return StepOutcome::Closed(reason::LEFT),
                _ => {}
            }
        }
        let channel = match &mut self.channel {
            Some(channel) => channel,
            empty => match encryption.accept() {
                Ok(channel) => empty.insert(channel),
                Err(broken) => return StepOutcome::Closed(broken.reason),
            },
        };
        if let Err(broken) = channel.absorb(ciphertext, &mut []) {
            return match self.send(StepOutcome::Refused(broken.reason)) {
                StepOutcome::Closed(_) => StepOutcome::Closed(broken.reason),
                step => step,
            };
        }
        if !has_begun || channel.wants_send() {
            self.last_progress = now;
        }
        let next = match received.state {
            _ if !channel.is_handshaking() => StepOutcome::Done,
            ReadState::More => StepOutcome::GoesOn,
            // The poll does not tell again of an end that came together with bytes.
            _ if self.hung_up => StepOutcome::GoesOn,
            _ => StepOutcome::Waits,
        };
        self.send(next)
    }

    /// Sends what the handshake has to say, and goes on so.
    fn send(&mut self, next: StepOutcome) -> StepOutcome {
        let Some(channel) = &mut self.channel else { return next };
        match channel.send(&mut StreamWriter(&mut self.socket)) {
            Ok(()) => next,
            // The rest goes when the poll says that there is room; of a session that has begun,
            // with its first answer.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => next,
            Err(_) => StepOutcome::Closed(reason::LEFT),
        }
    }
}
