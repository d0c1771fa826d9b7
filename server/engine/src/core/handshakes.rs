//! A core's new connections from their first byte to the end of their handshake. Does not contain
//! the order of handshakes or their timeouts (`pending_handshakes`).

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

/// Maximum pending handshakes per core; further connections stay in the listener's queue.
const PENDING: usize = 256;

/// Limits of a core's handshakes.
pub(super) fn limits(limits: &Limits) -> HandshakeLimits {
    HandshakeLimits { timeout: limits.handshake_timeout, linger: LINGER, discarded: DISCARDED }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Returns whether one more handshake may be pending, on any core.
    pub(super) fn may_begin_handshake(&self) -> bool {
        let engine = &self.handle().engine;
        engine.encryption.is_none()
            || engine.handshakes.waiting.load(Ordering::Relaxed) < PENDING * engine.mailboxes.cores()
    }

    /// Begins a handshake in a slot that was reserved for it.
    pub(super) fn begin_handshake(&mut self, id: ConnectionId, socket: S, is_full: bool, now: Time) {
        let tally = &self.state.handle.engine.handshakes;
        // A full server rejects a client before its handshake.
        if is_full || self.state.stopping_since.is_some() {
            tally.refuse(reason::FULL);
            return self.peers.release(id);
        }
        tally.waiting.fetch_add(1, Ordering::Relaxed);
        self.handshakes.add(id, socket, now);
    }

    /// Handles a readiness event of a socket that belongs to no peer.
    pub(super) fn handshake_ready(&mut self, slot: u32, event: ReadyEvent) {
        self.handshakes.ready(slot, event.readable, event.writable, event.hung_up);
    }

    /// Returns whether a handshake may take a step now.
    pub(super) fn may_handshake(&mut self, now: Time) -> bool {
        self.handshakes.has_ready() && self.state.shares.may_handshake(now)
    }

    /// Steps the next handshake, if the quota has time. At most one step per poll, since requests
    /// that arrive meanwhile wait for it. Returns whether there was a step.
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

    /// Counts the reason and closes the connection, if they are given.
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

    /// Counts one pending handshake less.
    fn forget_pending(&self) {
        self.state.handle.engine.handshakes.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a peer of a connection whose handshake is done.
    fn establish(&mut self, established: EstablishedConnection<S>, now: Time) {
        let EstablishedConnection { id, socket, channel, hung_up } = established;
        self.forget_pending();
        let engine = &self.state.handle.engine;
        let identity = channel.identity();
        let tenant = identity.as_ref().map(|identity| engine.tenants.find(identity));
        if tenant == Some(None) {
            engine.handshakes.refuse(reason::UNKNOWN_IDENTITY);
        } else {
            engine.handshakes.complete(channel.as_ref(), identity.is_some());
        }
        self.open_connection(id, ConnectionIo::Encrypted(Box::new(EncryptedStream::new(socket, channel))), now);
        let Some(peer) = self.peers.get(id) else { return };
        peer.hung_up = hung_up;
        match (identity, tenant.flatten()) {
            (Some(identity), Some(tenant)) => P::identify(&mut peer.connection, identity, tenant),
            (Some(_), None) => {
                let outcome = self.state.end(peer, &mut self.protocol, CloseReason::UnknownIdentity, now);
                return self.apply_outcome(id.slot, outcome, now);
            }
            (None, _) => {}
        }
        // Its first requests may be decrypted already, and no socket event reports these.
        self.state.read_later(peer);
    }

    /// Tells a client in its protocol that the port requires encryption.
    fn reject_plaintext(&mut self, closed: ClosedConnection<S>, now: Time) {
        let ClosedConnection { id, socket } = closed;
        self.forget_pending();
        self.open_connection(id, ConnectionIo::Stream(socket), now);
        if let Some(peer) = self.peers.get(id) {
            let outcome = self.state.end(peer, &mut self.protocol, CloseReason::Unencrypted, now);
            self.apply_outcome(id.slot, outcome, now);
        }
    }

    /// Gives up handshakes past their timeout. While all slots are taken, also those that make no
    /// progress.
    pub(super) fn scan_handshakes(&mut self, now: Time) {
        let is_crowded = self.handshakes.count() >= PENDING || !self.may_begin_handshake();
        for (reason, closed) in self.handshakes.scan(is_crowded, now) {
            self.give_up(reason, Some(closed));
        }
    }

    /// Closes all connections with a pending handshake, when the server stops.
    pub(super) fn close_handshakes(&mut self) {
        for closed in self.handshakes.close() {
            self.give_up(None, Some(closed));
        }
    }
}
