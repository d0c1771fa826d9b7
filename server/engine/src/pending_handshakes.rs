//! Pending handshakes of a core: connections that wait for a step of their handshake, or for their
//! client. A step costs as much as dozens of requests, and no request has asked for it: so each new
//! connection has one step per turn.
//!
//! Here is whose turn it is, what a step makes of the connection, and when it is given up. Never
//! here: how much time handshakes have (`fair_shares`), and what a handshake consists of
//! ([`crate::Encryption`]).

use crate::encryption::{Channel, Encryption, Sender};
use crate::farewell::Farewell;
use crate::job::ConnectionId;
use crate::receive::{Came, Received, Receiver};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Ciphertext that one step reads, bytes: more than a hello, less than a long chain of
/// certificates.
const STEP: usize = 4 * 1024;
/// While all places are taken, a new connection that has sent nothing for so long makes room.
const HURRY: Nanos = Nanos::from_millis(250);

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
    pub(crate) const STRANGER: &str = "stranger";
}

/// Bounds of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeLimits {
    /// Time from the beginning of a connection to the end of its handshake.
    pub(crate) patience: Nanos,
    /// Time in which a refused connection may take its reason.
    pub(crate) linger: Nanos,
    /// Bytes of a refused connection that are thrown away meanwhile.
    pub(crate) discarded: usize,
}

/// A connection whose handshake is not over.
struct Pending<S> {
    socket: S,
    id: ConnectionId,
    /// `None` before anything has come.
    channel: Option<Box<dyn Channel>>,
    since: Time,
    /// When its handshake last went on: a byte now and then is no reason to keep its place.
    heard: Time,
    is_queued: bool,
    hung_up: bool,
    /// Poll in which it came: readiness that this poll tells of its place is another connection's.
    poll: u64,
    /// When it was refused. It may take the reason before it is closed.
    ending_since: Option<Time>,
    discarded: usize,
}

/// Fate of a connection after a step.
enum Step {
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
pub(crate) struct Established<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
    pub(crate) channel: Box<dyn Channel>,
    /// Whether the poll has said that the peer sends nothing more.
    pub(crate) hung_up: bool,
}

/// A connection that is to be closed.
pub(crate) struct Closed<S> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: S,
}

/// Outcome of a turn. A connection that it holds is no longer pending.
pub(crate) enum Outcome<S> {
    /// The handshake goes on.
    Pending,
    Done(Established<S>),
    /// The peer speaks something else, and is told so by its protocol.
    Plaintext(Closed<S>),
    /// The connection is refused now, for this reason, or was refused before. Without a connection
    /// it takes its reason first.
    Refused(Option<&'static str>, Option<Closed<S>>),
}

/// Pending handshakes of a core.
pub(crate) struct PendingHandshakes<S> {
    pending: BTreeMap<u32, Pending<S>>,
    /// Connections with something to read, in turn.
    turns: VecDeque<ConnectionId>,
    poll: u64,
    limits: HandshakeLimits,
}

impl<S: Stream> PendingHandshakes<S> {
    pub(crate) fn new(limits: HandshakeLimits) -> Self {
        PendingHandshakes { pending: BTreeMap::new(), turns: VecDeque::new(), poll: 0, limits }
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
    pub(crate) fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Adds a connection.
    pub(crate) fn add(&mut self, id: ConnectionId, socket: S, now: Time) {
        let pending = Pending {
            socket,
            id,
            channel: None,
            since: now,
            heard: now,
            is_queued: false,
            hung_up: false,
            poll: self.poll,
            ending_since: None,
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
            self.turns.push_back(pending.id);
        }
    }

    /// Gives the next connection its turn: one step. `None` if none waits.
    pub(crate) fn turn(
        &mut self,
        encryption: &dyn Encryption,
        receiver: &mut Receiver,
        now: Time,
    ) -> Option<Outcome<S>> {
        let id = self.turns.pop_front()?;
        let limits = self.limits;
        let Some(pending) = self.pending.get_mut(&id.slot).filter(|pending| pending.id == id) else {
            return Some(Outcome::Pending);
        };
        pending.is_queued = false;
        if pending.ending_since.is_some() {
            let left = pending.socket.discard(&mut pending.discarded, limits.discarded);
            let closed = if left == Farewell::More { None } else { self.remove(id.slot) };
            return Some(Outcome::Refused(None, closed));
        }
        let mut scratch = receiver.borrow_scratch();
        let received = pending.socket.receive(receiver, &mut scratch[..STEP]);
        let step = match received {
            Err(_) => Step::Closed(reason::LEFT),
            Ok(received) => pending.step(received, &scratch[..received.bytes], encryption, limits.patience, now),
        };
        receiver.give_back(scratch);
        Some(self.outcome(id.slot, step, now))
    }

    fn outcome(&mut self, slot: u32, step: Step, now: Time) -> Outcome<S> {
        match step {
            Step::Waits => Outcome::Pending,
            Step::GoesOn => {
                self.queue(slot);
                Outcome::Pending
            }
            Step::Done => match self.pending.remove(&slot) {
                Some(Pending { socket, id, channel: Some(channel), hung_up, .. }) => {
                    Outcome::Done(Established { id, socket, channel, hung_up })
                }
                // A handshake without a channel is never done.
                _ => Outcome::Pending,
            },
            Step::Plaintext => self.remove(slot).map_or(Outcome::Pending, Outcome::Plaintext),
            Step::Closed(reason) => Outcome::Refused(Some(reason), self.remove(slot)),
            Step::Refused(reason) => {
                let Some(pending) = self.pending.get_mut(&slot) else { return Outcome::Pending };
                pending.ending_since = Some(now);
                let left = pending.socket.discard(&mut pending.discarded, self.limits.discarded);
                let is_over = pending.socket.shutdown().is_err() || left != Farewell::More;
                Outcome::Refused(Some(reason), if is_over { self.remove(slot) } else { None })
            }
        }
    }

    fn remove(&mut self, slot: u32) -> Option<Closed<S>> {
        self.pending.remove(&slot).map(|Pending { id, socket, .. }| Closed { id, socket })
    }

    /// Gives up connections whose time is over, and on a crowded server those that keep it waiting:
    /// each with its reason, unless it was refused before.
    pub(crate) fn sweep(&mut self, is_crowded: bool, now: Time) -> Vec<(Option<&'static str>, Closed<S>)> {
        let HandshakeLimits { patience, linger, .. } = self.limits;
        let mut over = Vec::new();
        for (slot, pending) in &self.pending {
            let stalls = !pending.is_queued && is_crowded && now.since(pending.heard) > HURRY;
            match pending.ending_since {
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
    pub(crate) fn close(&mut self) -> Vec<Closed<S>> {
        let slots: Vec<u32> = self.pending.keys().copied().collect();
        slots.into_iter().filter_map(|slot| self.remove(slot)).collect()
    }
}

impl<S: Stream> Pending<S> {
    /// Goes on with the handshake after `received`.
    fn step(
        &mut self,
        received: Received,
        ciphertext: &[u8],
        encryption: &dyn Encryption,
        patience: Nanos,
        now: Time,
    ) -> Step {
        match received.came {
            Came::End => return Step::Closed(reason::LEFT),
            // Perhaps there is room for the words that are left.
            Came::Nothing => return self.send(Step::Waits),
            Came::Drained | Came::More => {}
        }
        let has_begun = self.channel.is_some();
        // Of a hello that is as old as that the client has given up, or is about to.
        let age = now.since(self.since) + received.waited.unwrap_or(Nanos::ZERO);
        if self.channel.is_none() {
            match ciphertext.first() {
                Some(first) if !encryption.recognises(*first) => return Step::Plaintext,
                _ if age > patience => return Step::Closed(reason::WAITED),
                _ if self.hung_up => return Step::Closed(reason::LEFT),
                _ => {}
            }
        }
        let channel = match &mut self.channel {
            Some(channel) => channel,
            empty => match encryption.accept() {
                Ok(channel) => empty.insert(channel),
                Err(broken) => return Step::Closed(broken.reason),
            },
        };
        if let Err(broken) = channel.absorb(ciphertext, &mut []) {
            return match self.send(Step::Refused(broken.reason)) {
                Step::Closed(_) => Step::Closed(broken.reason),
                step => step,
            };
        }
        if !has_begun || channel.wants_send() {
            self.heard = now;
        }
        let next = match received.came {
            _ if !channel.is_handshaking() => Step::Done,
            Came::More => Step::GoesOn,
            // The poll does not tell again of an end that came together with bytes.
            _ if self.hung_up => Step::GoesOn,
            _ => Step::Waits,
        };
        self.send(next)
    }

    /// Sends what the handshake has to say, and goes on so.
    fn send(&mut self, next: Step) -> Step {
        let Some(channel) = &mut self.channel else { return next };
        match channel.send(&mut Sender(&mut self.socket)) {
            Ok(()) => next,
            // The rest goes when the poll says that there is room; of a session that has begun,
            // with its first answer.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => next,
            Err(_) => Step::Closed(reason::LEFT),
        }
    }
}
