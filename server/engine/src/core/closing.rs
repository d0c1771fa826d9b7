//! The ends of connections: reading on so that their last words arrive, and finding those that have been silent for too
//! long.

use super::{Core, CoreState, PeerOutcome};
use crate::closing_handshake::ClosingHandshake;
use crate::input::Input;
use crate::peer::Peer;
use crate::protocol::{CloseReason, Protocol};
use crate::stream::Stream;
use crate::trim;
use leeward_core::units::{Nanos, Time};

/// A connection that has been told why it ends has this long to take it and to end its own half.
pub(super) const LINGER: Nanos = Nanos::from_secs(1);
/// A connection from which nothing has come for so long needs no buffer.
const IDLE: Nanos = Nanos::from_secs(1);
/// A connection that has memory for a long request has this long to go on with it while others wait for such memory.
const SHORTAGE_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Bytes that are read and thrown away meanwhile: more than the largest value that a client may be in the middle of sending.
pub(super) const DISCARDED: usize = 1 << 22;
/// Connections of a core that may linger; the others end at once, so that faulty peers can't hold descriptors.
pub(super) const LINGERING: usize = 256;

impl<P: Protocol> CoreState<P> {
    /// Ends a connection that owes nothing more. One that has been told why goes on listening for a moment: closing with
    /// unread bytes would reset the connection, and what it was told could be lost with it.
    pub(super) fn close_or_linger<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> PeerOutcome {
        let lingers = peer.closing_since.is_some() && !peer.has_ended && self.closing <= LINGERING;
        if lingers && peer.stream.shutdown().is_ok() { self.discard(peer) } else { PeerOutcome::Close }
    }

    /// Reads what comes from a connection that is ending and throws it away, up to its end.
    pub(super) fn discard<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> PeerOutcome {
        let left = peer.stream.discard(&mut peer.discarded, DISCARDED);
        peer.has_ended |= left == ClosingHandshake::Done;
        match left {
            ClosingHandshake::Pending => PeerOutcome::Keep,
            // It may still take what is left for it.
            ClosingHandshake::Done if peer.out.unsent() > 0 => PeerOutcome::Keep,
            ClosingHandshake::Done | ClosingHandshake::Abandoned => PeerOutcome::Close,
        }
    }

    /// Sweeps a connection that is silent, stuck in a request, or doesn't read.
    fn scan<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) -> PeerOutcome {
        let limits = self.limits;
        if !peer.may_be_read(&limits) {
            // The rest of its request may be there.
            peer.partial_since = peer.partial_since.map(|_| now);
        }
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        // Whether it still has to take something or only to end its half.
        let ending = if peer.out.unsent() > 0 { limits.write_timeout } else { LINGER };
        let may_be_read_again = P::on_scan(&mut peer.connection) | peer.share.reset();
        let is_idle = P::unanswered(&peer.connection) == 0 && peer.out.unsent() == 0;
        if self.is_session_gone(peer, now) {
            return PeerOutcome::Close;
        }
        let (stuck, behind) = self.backlog.timeouts(limits.write_timeout);
        let takes_too_little = longer(peer.out.stuck_since(), stuck) || longer(peer.out.lagging_since(), behind);
        if takes_too_little || longer(peer.closing_since, ending) {
            return PeerOutcome::Close;
        }
        if peer.closing_since.is_some() {
            return PeerOutcome::Keep;
        }
        if is_idle && limits.idle_timeout.is_some_and(|silence| now.since(peer.last_received) > silence) {
            return self.end(peer, protocol, CloseReason::Silence, now);
        }
        let part = if peer.receive_grant > 0 && self.receive_budget.is_short {
            limits.request_timeout.min(SHORTAGE_TIMEOUT)
        } else {
            limits.request_timeout
        };
        if is_idle && now.since(peer.last_received) > IDLE {
            P::input(&mut peer.connection).release();
            peer.out.release();
            if peer.receive_grant > 0 {
                // Others may have what it had.
                let _ = peer.reserve_memory(&mut self.receive_budget);
            }
        }
        if longer(peer.partial_since, part) {
            return self.end(peer, protocol, CloseReason::SlowRequest, now);
        }
        if may_be_read_again || std::mem::take(&mut peer.is_short_of_memory) {
            self.read_later(peer);
        }
        PeerOutcome::Keep
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Ends connections that are silent, stuck in a request, or don't read, and pauses that are over.
    pub(super) fn scan(&mut self, now: Time) {
        for slot in 0..self.peers.slot_count() {
            let Some(peer) = self.peers.get_slot(slot) else { continue };
            let fate = self.state.scan(peer, &mut self.protocol, now);
            self.apply_outcome(slot, fate, now);
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
            // A ration that was used up is there again.
            inbound.validation_has_more = inbound.validation_socket.is_some();
        }
        self.scan_handshakes(now);
        // Out of descriptors, the listener says nothing more by itself.
        self.accept(now);
    }
}
