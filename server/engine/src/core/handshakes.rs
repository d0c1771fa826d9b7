//! A core's new connections from their first byte to the end of their handshake. Never here: whose
//! turn it is, and when a handshake is given up (`pending_handshakes`).

use super::ending::{DISCARDED, LINGER};
use super::{Core, Ready};
use crate::carrier::Carrier;
use crate::encryption::Encrypted;
use crate::job::ConnectionId;
use crate::limits::Limits;
use crate::pending_handshakes::{Closed, Established, HandshakeLimits, Outcome, reason};
use crate::protocol::{Ending, Protocol};
use crate::stream::Stream;
use leeward_core::units::Time;
use std::sync::atomic::Ordering;

/// Handshakes per core that may be pending; further connections stay with the listener.
const PENDING: usize = 256;

/// Bounds of a core's handshakes.
pub(super) fn limits(limits: &Limits) -> HandshakeLimits {
    HandshakeLimits { patience: limits.handshake, linger: LINGER, discarded: DISCARDED }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Whether one more handshake may be pending, on whichever core.
    pub(super) fn may_greet(&self) -> bool {
        let common = &self.handle().common;
        common.encryption.is_none() || common.tally.waiting.load(Ordering::Relaxed) < PENDING * common.mail.cores()
    }

    /// Begins a handshake at a place that was reserved for it.
    pub(super) fn greet(&mut self, id: ConnectionId, socket: S, is_full: bool, now: Time) {
        let tally = &self.local.handle.common.tally;
        // No client pays for a handshake to hear that the server is full.
        if is_full || self.local.stopping_since.is_some() {
            tally.refuse(reason::FULL);
            return self.peers.release(id);
        }
        tally.waiting.fetch_add(1, Ordering::Relaxed);
        self.handshakes.add(id, socket, now);
    }

    /// The poll tells of a socket that is no peer's.
    pub(super) fn knock(&mut self, slot: u32, event: Ready) {
        self.handshakes.ready(slot, event.readable, event.writable, event.hung_up);
    }

    /// Whether a handshake may take a step now.
    pub(super) fn may_shake(&mut self, now: Time) -> bool {
        self.handshakes.has_turns() && self.local.shares.may_shake(now)
    }

    /// Gives the next handshake its turn, if there is time for it. One per poll: requests that come
    /// meanwhile wait for it. Whether there was one.
    pub(super) fn shake(&mut self, now: Time) -> bool {
        let Some(encryption) = self.local.handle.common.encryption.clone() else { return false };
        if !self.may_shake(now) {
            return false;
        }
        let began = self.local.clock_now();
        let outcome = self.handshakes.turn(encryption.as_ref(), &mut self.local.receiver, began);
        match outcome {
            None => return false,
            Some(Outcome::Pending) => {}
            Some(Outcome::Done(established)) => self.enter(established, began),
            Some(Outcome::Plaintext(closed)) => {
                self.local.handle.common.tally.refuse(reason::PLAINTEXT);
                self.turn_away(closed, began);
            }
            Some(Outcome::Refused(reason, closed)) => self.give_up(reason, closed),
        }
        let clock = &self.local.handle.shared.clock;
        self.local.shares.charge_handshake(now, || clock.now().since(began));
        true
    }

    /// Counts a reason and closes a connection, as far as there are any.
    fn give_up(&mut self, reason: Option<&'static str>, closed: Option<Closed<S>>) {
        if let Some(reason) = reason {
            self.local.handle.common.tally.refuse(reason);
        }
        if let Some(Closed { id, mut socket }) = closed {
            self.forget_pending();
            socket.deregister(self.poll.registry());
            self.peers.release(id);
        }
    }

    /// A handshake is no longer pending.
    fn forget_pending(&self) {
        self.local.handle.common.tally.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a peer of a connection whose handshake is over.
    fn enter(&mut self, established: Established<S>, now: Time) {
        let Established { id, socket, channel, hung_up } = established;
        self.forget_pending();
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
                return self.follow(id.slot, fate, now);
            }
            (None, _) => {}
        }
        // Its first requests may be there: no socket will tell of what has been decrypted.
        self.local.read_later(peer);
    }

    /// Tells a client in its protocol's own words that the port is encrypted.
    fn turn_away(&mut self, closed: Closed<S>, now: Time) {
        let Closed { id, socket } = closed;
        self.forget_pending();
        self.take_in(id, Carrier::Stream(socket), now);
        if let Some(peer) = self.peers.get(id) {
            let fate = self.local.end(peer, &mut self.protocol, Ending::Unencrypted, now);
            self.follow(id.slot, fate, now);
        }
    }

    /// Gives up handshakes whose time is over, and while all places are taken those that keep the
    /// server waiting.
    pub(super) fn sweep_handshakes(&mut self, now: Time) {
        let is_crowded = self.handshakes.count() >= PENDING || !self.may_greet();
        for (reason, closed) in self.handshakes.sweep(is_crowded, now) {
            self.give_up(reason, Some(closed));
        }
    }

    /// Closes all connections with a pending handshake: the server stops.
    pub(super) fn close_handshakes(&mut self) {
        for closed in self.handshakes.close() {
            self.give_up(None, Some(closed));
        }
    }
}
