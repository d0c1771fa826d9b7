//! Closes connections: reads on until the final response has arrived, and finds connections that
//! are silent for too long.

use super::{Core, CoreState, PeerOutcome};
use crate::closing_handshake::ClosingHandshake;
use crate::input::Input;
use crate::peer::Peer;
use crate::protocol::{CloseReason, Protocol};
use crate::stream::Stream;
use crate::trim;
use leeward_core::units::{Nanos, Time};

/// Time in which a connection that got a final response must take it and end its own half.
pub(super) const LINGER: Nanos = Nanos::from_secs(1);
/// A connection that received nothing for this long gives its buffers back.
const IDLE: Nanos = Nanos::from_secs(1);
/// Time in which a connection must continue its long request while others wait for such memory.
const SHORTAGE_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Bytes that are read and discarded while closing: more than the largest value that a client may
/// be sending.
pub(super) const DISCARDED: usize = 1 << 22;
/// Largest number of connections of a core that may linger, and the part of the permitted
/// connections that they may be. Others close at once, so that faulty peers can't hold descriptors.
const LINGERING: usize = 256;
const LINGERING_PART: usize = 16;

/// Connections of a core that may linger where so many may be open.
pub(super) fn lingering(connections: usize) -> usize {
    (connections / LINGERING_PART).clamp(1, LINGERING)
}

impl<P: Protocol> CoreState<P> {
    /// Closes a connection without pending responses. A connection that got a final response keeps
    /// reading for a moment. Closing with unread bytes would reset it, and the response could be
    /// lost.
    pub(super) fn close_or_linger<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> PeerOutcome {
        let lingers =
            peer.closing_since.is_some() && !peer.has_ended && self.closing <= lingering(self.limits.connections);
        if lingers && peer.stream.shutdown().is_ok() { self.discard(peer) } else { PeerOutcome::Close }
    }

    /// Reads and discards bytes of a closing connection, up to its end.
    pub(super) fn discard<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> PeerOutcome {
        let state = peer.stream.discard(&mut peer.discarded, DISCARDED);
        peer.has_ended |= state == ClosingHandshake::Done;
        match state {
            ClosingHandshake::Pending => PeerOutcome::Keep,
            // The peer may still take the bytes that are left for it.
            ClosingHandshake::Done if peer.out.unsent() > 0 => PeerOutcome::Keep,
            ClosingHandshake::Done | ClosingHandshake::Abandoned => PeerOutcome::Close,
        }
    }

    /// Checks whether a connection is silent, stuck in a request, or doesn't read.
    fn scan<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) -> PeerOutcome {
        let limits = self.limits;
        if !peer.may_be_read(&limits) {
            // The rest of its request may already be in the socket.
            peer.partial_since = peer.partial_since.map(|_| now);
        }
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        // A peer with unsent bytes has the write timeout. Otherwise it only has to end its half.
        let ending = if peer.out.unsent() > 0 { limits.write_timeout } else { LINGER };
        let may_be_read_again = P::on_scan(&mut peer.connection) | peer.share.reset();
        let is_idle = P::unanswered(&peer.connection) == 0 && peer.out.unsent() == 0;
        if self.is_session_gone(peer, now) {
            return PeerOutcome::Close;
        }
        let (stuck, lagging) = self.backlog.timeouts(limits.write_timeout);
        let takes_too_little = longer(peer.out.stuck_since(), stuck) || longer(peer.out.lagging_since(), lagging);
        if takes_too_little || longer(peer.closing_since, ending) {
            return PeerOutcome::Close;
        }
        if peer.closing_since.is_some() {
            return PeerOutcome::Keep;
        }
        if is_idle && limits.idle_timeout.is_some_and(|timeout| now.since(peer.last_received) > timeout) {
            return self.end(peer, protocol, CloseReason::Silence, now);
        }
        let timeout = if peer.receive_grant > 0 && self.receive_budget.is_short {
            limits.request_timeout.min(SHORTAGE_TIMEOUT)
        } else {
            limits.request_timeout
        };
        if is_idle && now.since(peer.last_received) > IDLE {
            P::input(&mut peer.connection).release();
            peer.out.release();
            if peer.receive_grant > 0 {
                // Other connections may have this memory.
                let _ = peer.reserve_memory(&mut self.receive_budget);
            }
        }
        if longer(peer.partial_since, timeout) {
            return self.end(peer, protocol, CloseReason::SlowRequest, now);
        }
        if may_be_read_again || std::mem::take(&mut peer.is_short_of_memory) {
            self.read_later(peer);
        }
        PeerOutcome::Keep
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Closes connections that are silent, stuck in a request, or don't read, and ends pauses.
    pub(super) fn scan(&mut self, now: Time) {
        for slot in 0..self.peers.slot_count() {
            let Some(peer) = self.peers.get_slot(slot) else { continue };
            let outcome = self.state.scan(peer, &mut self.protocol, now);
            self.apply_outcome(slot, outcome, now);
        }
        self.state.receive_budget.is_short = false;
        self.state.shares.reset();
        if self.state.receive_budget.has_receded()
            | self.state.backlog.has_receded()
            | self.connection_peak.has_receded(self.peers.open())
        {
            trim::give_back();
        }
        if let Some(inbound) = &mut self.inbound {
            // The time quota may have time again.
            inbound.validation_has_more = inbound.validation_socket.is_some();
        }
        self.scan_handshakes(now);
        // After descriptors ran out, the listener reports no event by itself.
        self.accept(now);
    }
}
