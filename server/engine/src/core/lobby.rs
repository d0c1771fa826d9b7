//! Handshakes: what an encrypted connection goes through before it is a peer.
//!
//! A handshake costs as much as dozens of requests, and nobody on the core has asked for it. So newcomers are read in turn, one
//! step each, for a sixteenth of the core's time while it has requests and for all of it while it has had none for a while. Until its turn a
//! newcomer's bytes stay in its socket. Who waits for too long, or keeps the server waiting, is given up.
//!
//! Never here: what a handshake consists of ([`crate::Encryption`]).

use super::ending::{DISCARDED, LINGER};
use super::{Core, Ready};
use crate::carrier::Carrier;
use crate::encryption::{Channel, Encrypted, Encryption, Sender};
use crate::farewell::Farewell;
use crate::protocol::{ConnectionId, Ending, Protocol};
use crate::ration::Ration;
use crate::receive::{Came, Received};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Newcomers per core that may be waiting or under way; further connections stay with the listener.
pub(super) const NEWCOMERS: usize = 256;
/// Ciphertext that one step reads, bytes: more than a hello, less than a long chain of certificates.
const STEP: usize = 4 * 1024;
/// A core that has answered nothing for so long has hardly anybody whom a handshake would keep waiting. Not a millisecond: a thousand requests per
/// second leave gaps of that in which a storm would take the core, and each request would find it busy.
const QUIET: Nanos = Nanos::from_millis(5);
/// While all places are taken, a newcomer that has said nothing for so long makes room.
const HURRY: Nanos = Nanos::from_millis(250);

/// Reasons to give up a newcomer besides those of the encryption itself.
mod reason {
    /// The peer did not go on in time.
    pub(super) const STALLED: &str = "stalled";
    /// The server had no time for it in time.
    pub(super) const WAITED: &str = "waited";
    /// The peer has gone.
    pub(super) const LEFT: &str = "left";
    /// The server has as many connections as it takes, or is stopping.
    pub(super) const FULL: &str = "full";
    /// The peer speaks something else.
    pub(super) const PLAINTEXT: &str = "plaintext";
    /// The peer's identity is not in the table of tenants, and strangers are refused.
    pub(super) const STRANGER: &str = "stranger";
}

/// A connection whose handshake is not over.
struct Newcomer<S> {
    socket: S,
    id: ConnectionId,
    /// `None` before anything has come.
    channel: Option<Box<dyn Channel>>,
    since: Time,
    /// When its handshake last went on: a byte now and then is no reason to keep its place.
    heard: Time,
    is_queued: bool,
    hung_up: bool,
    /// The look in which it came: what the poll said in that one of its place was said of somebody else.
    look: u64,
    /// When it was told why it ends: it may take that before the connection is closed.
    ending_since: Option<Time>,
    discarded: usize,
}

/// Fate of a newcomer after a step.
enum Step {
    /// Waits for its peer.
    Waits,
    /// May go on at once, after others.
    GoesOn,
    /// The handshake is over.
    Enters,
    /// Speaks something else, and is told so in its own words.
    Foreign,
    /// Given up, with nothing to be told.
    Gone(&'static str),
    /// Given up, and takes the words for that.
    Told(&'static str),
}

/// A core's newcomers.
pub(super) struct Lobby<S> {
    newcomers: BTreeMap<u32, Newcomer<S>>,
    /// Newcomers with something to read, in turn.
    turns: VecDeque<ConnectionId>,
    ration: Ration,
    look: u64,
}

impl<S: Stream> Lobby<S> {
    pub(super) fn new() -> Self {
        Lobby { newcomers: BTreeMap::new(), turns: VecDeque::new(), ration: Ration::of_handshakes(), look: 0 }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.newcomers.len()
    }

    /// The poll has been asked: places that are given from now on have no part in its answer.
    pub(super) fn begin_look(&mut self) {
        self.look += 1;
    }

    /// Whether somebody waits for the core.
    pub(super) fn is_waited_in(&self) -> bool {
        !self.turns.is_empty()
    }

    fn queue(&mut self, slot: u32) {
        if let Some(newcomer) = self.newcomers.get_mut(&slot)
            && !newcomer.is_queued
        {
            newcomer.is_queued = true;
            self.turns.push_back(newcomer.id);
        }
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Whether there is room for one more newcomer, on whichever core.
    pub(super) fn has_room_in_the_lobby(&self) -> bool {
        let common = &self.handle().common;
        common.encryption.is_none() || common.tally.waiting.load(Ordering::Relaxed) < NEWCOMERS * common.mail.cores()
    }

    /// Begins a handshake at a place that was reserved for it.
    pub(super) fn greet(&mut self, id: ConnectionId, socket: S, is_full: bool, now: Time) {
        let tally = &self.local.handle.common.tally;
        // Nobody pays for a handshake to hear that there is no room.
        if is_full || self.local.stopping_since.is_some() {
            tally.refuse(reason::FULL);
            return self.peers.release(id);
        }
        tally.waiting.fetch_add(1, Ordering::Relaxed);
        let newcomer = Newcomer {
            socket,
            id,
            channel: None,
            since: now,
            heard: now,
            is_queued: false,
            hung_up: false,
            look: self.lobby.look,
            ending_since: None,
            discarded: 0,
        };
        self.lobby.newcomers.insert(id.slot, newcomer);
    }

    /// The poll says something about a socket that is no peer's.
    pub(super) fn knock(&mut self, slot: u32, event: Ready) {
        let look = self.lobby.look;
        let Some(newcomer) = self.lobby.newcomers.get_mut(&slot).filter(|newcomer| newcomer.look != look) else {
            return;
        };
        newcomer.hung_up |= event.hung_up;
        let has_words = newcomer.channel.as_ref().is_some_and(|channel| channel.wants_send());
        if event.readable || (event.writable && has_words) {
            self.lobby.queue(slot);
        }
    }

    /// Whether nobody would have to wait for a handshake.
    fn is_quiet(&self, now: Time) -> bool {
        now.since(self.local.served) > QUIET
    }

    /// Whether a handshake may take a step now.
    pub(super) fn may_shake(&mut self, now: Time) -> bool {
        self.lobby.is_waited_in() && (self.is_quiet(now) || self.lobby.ration.is_there(now))
    }

    /// Takes time that a coming or going has cost from that for handshakes: a storm brings both.
    pub(super) fn charge_lobby(&mut self, spent: Nanos, now: Time) {
        if self.local.handle.common.encryption.is_some() && !self.is_quiet(now) {
            self.lobby.ration.spend(spent);
        }
    }

    /// Gives the next newcomer its turn, if there is time for it. One at a look: requests that come meanwhile wait for it. Whether anybody
    /// had one.
    pub(super) fn serve_lobby(&mut self, now: Time) -> bool {
        let Some(encryption) = self.local.handle.common.encryption.clone() else { return false };
        if !self.may_shake(now) {
            return false;
        }
        let Some(id) = self.lobby.turns.pop_front() else { return false };
        let (is_quiet, began) = (self.is_quiet(now), self.local.clock_now());
        self.turn(id, &encryption, began);
        if !is_quiet {
            self.lobby.ration.spend(self.local.clock_now().since(began));
        }
        true
    }

    fn turn(&mut self, id: ConnectionId, encryption: &Arc<dyn Encryption>, now: Time) {
        let Core { lobby, local, .. } = self;
        let Some(newcomer) = lobby.newcomers.get_mut(&id.slot).filter(|newcomer| newcomer.id == id) else { return };
        newcomer.is_queued = false;
        if newcomer.ending_since.is_some() {
            if newcomer.socket.discard(&mut newcomer.discarded, DISCARDED) != Farewell::More {
                self.dismiss(id.slot);
            }
            return;
        }
        let mut scratch = local.receiver.borrow_scratch();
        let received = newcomer.socket.receive(&mut local.receiver, &mut scratch[..STEP]);
        let step = match received {
            Err(_) => Step::Gone(reason::LEFT),
            Ok(received) => {
                newcomer.step(received, &scratch[..received.bytes], encryption.as_ref(), local.limits.handshake, now)
            }
        };
        local.receiver.give_back(scratch);
        self.follow_newcomer(id.slot, step, now);
    }

    fn follow_newcomer(&mut self, slot: u32, step: Step, now: Time) {
        let tally = &self.local.handle.common.tally;
        match step {
            Step::Waits => {}
            Step::GoesOn => self.lobby.queue(slot),
            Step::Enters => self.enter(slot, now),
            Step::Foreign => {
                tally.refuse(reason::PLAINTEXT);
                self.turn_away(slot, now);
            }
            Step::Gone(reason) => {
                tally.refuse(reason);
                self.dismiss(slot);
            }
            Step::Told(reason) => {
                tally.refuse(reason);
                let Some(newcomer) = self.lobby.newcomers.get_mut(&slot) else { return };
                newcomer.ending_since = Some(now);
                let left = newcomer.socket.discard(&mut newcomer.discarded, DISCARDED);
                if newcomer.socket.shutdown().is_err() || left != Farewell::More {
                    self.dismiss(slot);
                }
            }
        }
    }

    /// Takes a newcomer from the lobby.
    fn leave_lobby(&mut self, slot: u32) -> Option<Newcomer<S>> {
        let newcomer = self.lobby.newcomers.remove(&slot)?;
        self.local.handle.common.tally.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(newcomer)
    }

    /// Closes a newcomer's connection.
    fn dismiss(&mut self, slot: u32) {
        if let Some(mut newcomer) = self.leave_lobby(slot) {
            newcomer.socket.deregister(self.poll.registry());
            self.peers.release(newcomer.id);
        }
    }

    /// Makes a peer of a newcomer whose handshake is over.
    fn enter(&mut self, slot: u32, now: Time) {
        let Some(Newcomer { socket, id, channel: Some(channel), hung_up, .. }) = self.leave_lobby(slot) else { return };
        let common = &self.local.handle.common;
        let identity = channel.identity();
        let tenant = identity.as_ref().map(|identity| common.tenants.find(identity));
        if tenant == Some(None) {
            common.tally.refuse(reason::STRANGER);
        } else {
            common.tally.complete(channel.as_ref(), identity.is_some());
        }
        self.take_in(id, Carrier::Encrypted(Box::new(Encrypted::new(socket, channel))), now);
        let Some(peer) = self.peers.get(id) else { return };
        peer.hung_up = hung_up;
        match (identity, tenant.flatten()) {
            (Some(identity), Some(tenant)) => P::identify(&mut peer.connection, identity, tenant),
            (Some(_), None) => {
                let fate = self.local.end(peer, &mut self.protocol, Ending::Stranger, now);
                return self.follow(slot, fate, now);
            }
            (None, _) => {}
        }
        // Its first requests may be there: no socket will tell of what has been decrypted.
        self.local.read_later(peer);
    }

    /// Tells a newcomer in the protocol's own words that this is the wrong way in.
    fn turn_away(&mut self, slot: u32, now: Time) {
        let Some(Newcomer { socket, id, .. }) = self.leave_lobby(slot) else { return };
        self.take_in(id, Carrier::Stream(socket), now);
        if let Some(peer) = self.peers.get(id) {
            let fate = self.local.end(peer, &mut self.protocol, Ending::Unencrypted, now);
            self.follow(slot, fate, now);
        }
    }

    /// Gives up newcomers whose time is over, and while all places are taken those that keep the server waiting.
    pub(super) fn sweep_lobby(&mut self, now: Time) {
        let is_crowded = self.lobby.count() >= NEWCOMERS || !self.has_room_in_the_lobby();
        let (patience, tally) = (self.local.limits.handshake, &self.local.handle.common.tally);
        let mut over = Vec::new();
        for (slot, newcomer) in &self.lobby.newcomers {
            let stalls = !newcomer.is_queued && is_crowded && now.since(newcomer.heard) > HURRY;
            match newcomer.ending_since {
                Some(since) if now.since(since) > LINGER || is_crowded => over.push(*slot),
                None if stalls || now.since(newcomer.since) > patience => {
                    tally.refuse(if newcomer.is_queued { reason::WAITED } else { reason::STALLED });
                    over.push(*slot);
                }
                _ => {}
            }
        }
        over.into_iter().for_each(|slot| self.dismiss(slot));
    }

    /// Closes all newcomers' connections: the server stops.
    pub(super) fn close_lobby(&mut self) {
        let all: Vec<u32> = self.lobby.newcomers.keys().copied().collect();
        all.into_iter().for_each(|slot| self.dismiss(slot));
    }
}

impl<S: Stream> Newcomer<S> {
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
            Came::End => return Step::Gone(reason::LEFT),
            // Perhaps there is room for the words that are left.
            Came::Nothing => return self.say(Step::Waits),
            Came::Drained | Came::More => {}
        }
        let has_begun = self.channel.is_some();
        // Of a hello that is as old as that the client has given up, or is about to.
        let age = now.since(self.since) + received.waited.unwrap_or(Nanos::ZERO);
        if self.channel.is_none() {
            match ciphertext.first() {
                Some(first) if !encryption.recognises(*first) => return Step::Foreign,
                _ if age > patience => return Step::Gone(reason::WAITED),
                _ if self.hung_up => return Step::Gone(reason::LEFT),
                _ => {}
            }
        }
        let channel = match &mut self.channel {
            Some(channel) => channel,
            empty => match encryption.accept() {
                Ok(channel) => empty.insert(channel),
                Err(broken) => return Step::Gone(broken.reason),
            },
        };
        if let Err(broken) = channel.absorb(ciphertext, &mut []) {
            return match self.say(Step::Told(broken.reason)) {
                Step::Gone(_) => Step::Gone(broken.reason),
                step => step,
            };
        }
        if !has_begun || channel.wants_send() {
            self.heard = now;
        }
        let next = match received.came {
            _ if !channel.is_handshaking() => Step::Enters,
            Came::More => Step::GoesOn,
            // The poll does not tell again of an end that came together with bytes.
            _ if self.hung_up => Step::GoesOn,
            _ => Step::Waits,
        };
        self.say(next)
    }

    /// Sends what the handshake has to say, and goes on so.
    fn say(&mut self, next: Step) -> Step {
        let Some(channel) = &mut self.channel else { return next };
        match channel.send(&mut Sender(&mut self.socket)) {
            Ok(()) => next,
            // The rest goes when the poll says that there is room; of a session that has begun, with its first answer.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => next,
            Err(_) => Step::Gone(reason::LEFT),
        }
    }
}
