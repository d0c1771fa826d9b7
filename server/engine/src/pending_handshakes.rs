//! Pending handshakes of a core: connections that wait for a step of their handshake, or for their
//! client. A step costs as much as dozens of requests, and no request has asked for it. So each new
//! connection takes one step before the others' next steps.
//!
//! Contains the order of handshakes, the result of a step, and the timeouts. Does not contain the
//! time that handshakes may take (`fair_shares`), or a handshake's messages
//! ([`crate::Encryption`]).

use crate::closing_handshake::ClosingHandshake;
use crate::encryption::{Encryption, SecureChannel, StreamWriter};
use crate::job::ConnectionId;
use crate::receive::{ReadOutcome, ReadState, SocketReader};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Ciphertext that one step reads, bytes: more than a client hello, less than a long chain of
/// certificates.
const STEP: usize = 4 * 1024;
/// While all slots are taken, time after which a new connection without progress is closed.
const CROWDED_TIMEOUT: Nanos = Nanos::from_millis(250);

/// Reasons to reject a connection, besides the encryption's own.
pub(crate) mod reason {
    /// The peer did not continue in time.
    pub(crate) const STALLED: &str = "stalled";
    /// The server had no time for the handshake before its timeout.
    pub(crate) const WAITED: &str = "waited";
    /// The peer has gone.
    pub(crate) const LEFT: &str = "left";
    /// The server has reached its connection limit, or is stopping.
    pub(crate) const FULL: &str = "full";
    /// The peer does not use encryption.
    pub(crate) const PLAINTEXT: &str = "plaintext";
    /// The peer's identity is not in the table of tenants, which rejects unknown identities.
    pub(crate) const UNKNOWN_IDENTITY: &str = "stranger";
}

/// Limits of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeLimits {
    /// Maximum time from the beginning of a connection to the end of its handshake.
    pub(crate) timeout: Nanos,
    /// Time in which a rejected connection may take the reason.
    pub(crate) linger: Nanos,
    /// Maximum bytes of a rejected connection that are discarded meanwhile.
    pub(crate) discarded: usize,
}

/// A connection whose handshake is not done.
struct PendingHandshake<S> {
    socket: S,
    id: ConnectionId,
    /// `None` before the first byte.
    channel: Option<Box<dyn SecureChannel>>,
    since: Time,
    /// Last time at which the handshake made progress. A byte now and then does not keep the slot.
    last_progress: Time,
    is_queued: bool,
    hung_up: bool,
    /// Poll in which it arrived. Readiness of its slot from this poll belongs to another
    /// connection.
    poll: u64,
    /// Time of its rejection. It may take the reason before it is closed.
    closing_since: Option<Time>,
    discarded: usize,
}

/// Outcome of a handshake step.
enum StepOutcome {
    /// Waits for its peer.
    Waits,
    /// May continue at once, after other connections.
    GoesOn,
    /// The handshake is done.
    Done,
    /// The peer does not use encryption.
    Plaintext,
    /// Rejected without a message.
    Closed(&'static str),
    /// Rejected with a message that tells the reason.
    Refused(&'static str),
}

/// A connection whose handshake is done.
pub(crate) struct EstablishedConnection<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
    pub(crate) channel: Box<dyn SecureChannel>,
    /// Whether the poll has reported that the peer sends nothing more.
    pub(crate) hung_up: bool,
}

/// A connection to be closed.
pub(crate) struct ClosedConnection<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
}

/// Result of a step for the core. A connection in it is no longer pending.
pub(crate) enum HandshakeOutcome<S> {
    /// The handshake continues.
    Pending,
    Done(EstablishedConnection<S>),
    /// The peer does not use encryption; its protocol sends it an error.
    Plaintext(ClosedConnection<S>),
    /// The connection was rejected, now with this reason or before. Without a connection here, the
    /// peer takes its reason first.
    Refused(Option<&'static str>, Option<ClosedConnection<S>>),
}

/// Pending handshakes of a core.
pub(crate) struct PendingHandshakes<S> {
    pending: BTreeMap<u32, PendingHandshake<S>>,
    /// Connections with something to read, in order.
    ready: VecDeque<ConnectionId>,
    poll: u64,
    limits: HandshakeLimits,
}

impl<S: Stream> PendingHandshakes<S> {
    pub(crate) fn new(limits: HandshakeLimits) -> Self {
        PendingHandshakes { pending: BTreeMap::new(), ready: VecDeque::new(), poll: 0, limits }
    }

    /// Number of pending handshakes.
    pub(crate) fn count(&self) -> usize {
        self.pending.len()
    }

    /// Begins a poll. Its readiness does not apply to slots that are assigned from now on.
    pub(crate) fn begin_poll(&mut self) {
        self.poll += 1;
    }

    /// Returns whether a connection waits for a step.
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

    /// Handles a readiness event of the socket in a slot.
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

    /// Takes one step of the next connection. `None` if none waits.
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
            let state = pending.socket.discard(&mut pending.discarded, limits.discarded);
            let closed = if state == ClosingHandshake::Pending { None } else { self.remove(id.slot) };
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
                let state = pending.socket.discard(&mut pending.discarded, self.limits.discarded);
                let is_over = pending.socket.shutdown().is_err() || state != ClosingHandshake::Pending;
                HandshakeOutcome::Refused(Some(reason), if is_over { self.remove(slot) } else { None })
            }
        }
    }

    fn remove(&mut self, slot: u32) -> Option<ClosedConnection<S>> {
        self.pending.remove(&slot).map(|PendingHandshake { id, socket, .. }| ClosedConnection { id, socket })
    }

    /// Removes connections past their timeout. On a crowded server, also those without progress.
    /// Each has its reason, unless it was rejected before.
    pub(crate) fn scan(&mut self, is_crowded: bool, now: Time) -> Vec<(Option<&'static str>, ClosedConnection<S>)> {
        let HandshakeLimits { timeout: max_age, linger, .. } = self.limits;
        let mut over = Vec::new();
        for (slot, pending) in &self.pending {
            let stalls = !pending.is_queued && is_crowded && now.since(pending.last_progress) > CROWDED_TIMEOUT;
            match pending.closing_since {
                Some(since) if now.since(since) > linger || is_crowded => over.push((*slot, None)),
                None if stalls || now.since(pending.since) > max_age => {
                    over.push((*slot, Some(if pending.is_queued { reason::WAITED } else { reason::STALLED })));
                }
                _ => {}
            }
        }
        over.into_iter().filter_map(|(slot, reason)| Some((reason, self.remove(slot)?))).collect()
    }

    /// Takes all connections, when the server stops.
    pub(crate) fn close(&mut self) -> Vec<ClosedConnection<S>> {
        let slots: Vec<u32> = self.pending.keys().copied().collect();
        slots.into_iter().filter_map(|slot| self.remove(slot)).collect()
    }
}

impl<S: Stream> PendingHandshake<S> {
    /// Continues the handshake after `received`.
    fn step(
        &mut self,
        received: ReadOutcome,
        ciphertext: &[u8],
        encryption: &dyn Encryption,
        max_age: Nanos,
        now: Time,
    ) -> StepOutcome {
        match received.state {
            ReadState::End => return StepOutcome::Closed(reason::LEFT),
            // The socket may have space for the rest of the message.
            ReadState::Empty => return self.send(StepOutcome::Waits),
            ReadState::Drained | ReadState::More => {}
        }
        let has_begun = self.channel.is_some();
        // Age of the client hello. The client of one beyond the timeout has given up, or is about
        // to.
        let age = now.since(self.since) + received.wait.unwrap_or(Nanos::ZERO);
        if self.channel.is_none() {
            match ciphertext.first() {
                Some(first) if !encryption.recognises(*first) => return StepOutcome::Plaintext,
                _ if age > max_age => return StepOutcome::Closed(reason::WAITED),
                _ if self.hung_up => return StepOutcome::Closed(reason::LEFT),
                _ => {}
            }
        }
        let channel = match &mut self.channel {
            Some(channel) => channel,
            empty => match encryption.accept() {
                Ok(channel) => empty.insert(channel),
                Err(error) => return StepOutcome::Closed(error.reason),
            },
        };
        if let Err(error) = channel.absorb(ciphertext, &mut []) {
            return match self.send(StepOutcome::Refused(error.reason)) {
                StepOutcome::Closed(_) => StepOutcome::Closed(error.reason),
                step => step,
            };
        }
        if !has_begun || channel.wants_send() {
            self.last_progress = now;
        }
        let next = match received.state {
            _ if !channel.is_handshaking() => StepOutcome::Done,
            ReadState::More => StepOutcome::GoesOn,
            // The poll does not report again an end that arrived together with bytes.
            _ if self.hung_up => StepOutcome::GoesOn,
            _ => StepOutcome::Waits,
        };
        self.send(next)
    }

    /// Sends the handshake's pending bytes, and returns `next`.
    fn send(&mut self, next: StepOutcome) -> StepOutcome {
        let Some(channel) = &mut self.channel else { return next };
        match channel.send(&mut StreamWriter(&mut self.socket)) {
            Ok(()) => next,
            // The rest leaves when the socket is writable, or with the first response of an
            // established session.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => next,
            Err(_) => StepOutcome::Closed(reason::LEFT),
        }
    }
}
