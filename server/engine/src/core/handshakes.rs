//! A core's new connections from their first byte to the end of their handshake. Never here: whose
//! turn it is, and when a handshake is given up (`pending_handshakes`).

use super::closing::{DISCARDED, LINGER};
use super::{Core, ReadyEvent};
use crate::connection_io::ConnectionIo;
use crate::encryption::EncryptedStream;
use crate::job::ConnectionId;
use crate::limits::Limits;
use crate::pending_handshakes::{ClosedConnection, EstablishedConnection, HandshakeLimits, HandshakeOutcome, reason};
use crate::protocol::{CloseReason, Protocol};
use crate::stream::Stream;
use leeward_core::units::Time;
use std::sync::atomic::Ordering;

/// Handshakes per core that may be pending; further connections stay with the listener.
const PENDING: usize = 256;

/// Bounds of a core's handshakes.
pub(super) fn limits(limits: &Limits) -> HandshakeLimits {
    HandshakeLimits { timeout: limits.handshake_timeout, linger: LINGER, discarded: DISCARDED }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Whether one more handshake may be pending, on whichever core.
    pub(super) fn may_begin_handshake(&self) -> bool {
        let common = &self.handle().engine;
        common.encryption.is_none()
            || common.handshakes.waiting.load(Ordering::Relaxed) < PENDING * common.mailboxes.cores()
    }

    /// Begins a handshake at a place that was reserved for it.
    pub(super) fn begin_handshake(&mut self, id: ConnectionId, socket: S, is_full: bool, now: Time) {
        let tally = &self.state.handle.engine.handshakes;
        // No client pays for a handshake to hear that the server is full.
        if is_full || self.state.stopping_since.is_some() {
            tally.refuse(reason::FULL);
            return self.peers.release(id);
        }
        tally.waiting.fetch_add(1, Ordering::Relaxed);
        self.handshakes.add(id, socket, now);
    }

    /// The poll tells of a socket that is no peer's.
    pub(super) fn handshake_ready(&mut self, slot: u32, event: ReadyEvent) {
        self.handshakes.ready(slot, event.readable, event.writable, event.hung_up);
    }

    /// Whether a handshake may take a step now.
    pub(super) fn may_handshake(&mut self, now: Time) -> bool {
        self.handshakes.has_ready() && self.state.shares.may_handshake(now)
    }

    /// Gives the next handshake its turn, if there is time for it. One per poll: requests that come
    /// meanwhile wait for it. Whether there was one.
    pub(super) fn step_handshake(&mut self, now: Time) -> bool {
        let Some(encryption) = self.state.handle.engine.encryption.clone() else { return false };
        if !self.may_handshake(now) {
            return false;
        }
        let began = self.state.clock_now();
        let outcome = self.handshakes.step_next(encryption.as_ref(), &mut self.state.receiver, began);
        match outcome {
            None => return false,
            Some(HandshakeOutcome::Pending) => {}
            Some(HandshakeOutcome::Done(established)) => self.establish(established, began),
            Some(HandshakeOutcome::Plaintext(closed)) => {
                self.state.handle.engine.handshakes.refuse(reason::PLAINTEXT);
                self.reject_plaintext(closed, began);
            }
            Some(HandshakeOutcome::Refused(reason, closed)) => self.give_up(reason, closed),
        }
        let clock = &self.state.handle.shared.clock;
        self.state.shares.charge_handshake(now, || clock.now().since(began));
        true
    }

    /// Counts a reason and closes a connection, as far as there are any.
    fn give_up(&mut self, reason: Option<&'static str>, closed: Option<ClosedConnection<S>>) {
        if let Some(reason) = reason {
            self.state.handle.engine.handshakes.refuse(reason);
        }
        if let Some(ClosedConnection { id, mut socket }) = closed {
            self.forget_pending();
            socket.deregister(self.poll.registry());
            self.peers.release(id);
        }
    }

    /// A handshake is no longer pending.
    fn forget_pending(&self) {
        self.state.handle.engine.handshakes.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a peer of a connection whose handshake is over.
    fn establish(&mut self, established: EstablishedConnection<S>, now: Time) {
        let EstablishedConnection { id, socket, channel, hung_up } = established;
        self.forget_pending();
        let common = &self.state.handle.engine;
        let identity = channel.identity();
        let tenant = identity.as_ref().map(|identity| common.tenants.find(identity));
        if tenant == Some(None) {
            common.handshakes.refuse(reason::UNKNOWN_IDENTITY);
        } else {
            common.handshakes.complete(channel.as_ref(), identity.is_some());
        }
        self.open_connection(id, ConnectionIo::Encrypted(Box::new(EncryptedStream::new(socket, channel))), now);
        let Some(peer) = self.peers.get(id) else { return };
        peer.hung_up = hung_up;
        match (identity, tenant.flatten()) {
            (Some(identity), Some(tenant)) => P::identify(&mut peer.connection, identity, tenant),
            (Some(_), None) => {
                let fate = self.state.end(peer, &mut self.protocol, CloseReason::UnknownIdentity, now);
                return self.apply_outcome(id.slot, fate, now);
            }
            (None, _) => {}
        }
        // Its first requests may be there: no socket will tell of what has been decrypted.
        self.state.read_later(peer);
    }

    /// Tells a client in its protocol's own words that the port is encrypted.
    fn reject_plaintext(&mut self, closed: ClosedConnection<S>, now: Time) {
        let ClosedConnection { id, socket } = closed;
        self.forget_pending();
        self.open_connection(id, ConnectionIo::Stream(socket), now);
        if let Some(peer) = self.peers.get(id) {
            let fate = self.state.end(peer, &mut self.protocol, CloseReason::Unencrypted, now);
            self.apply_outcome(id.slot, fate, now);
        }
    }

    /// Gives up handshakes whose time is over, and while all places are taken those that keep the
    /// server waiting.
    pub(super) fn scan_handshakes(&mut self, now: Time) {
        let is_crowded = self.handshakes.count() >= PENDING || !self.may_begin_handshake();
        for (reason, closed) in self.handshakes.scan(is_crowded, now) {
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
