//! The ends of connections: reading on so that their last words arrive, and finding those that have been silent for too
//! long.

use super::{Core, Fate, Local};
use crate::farewell::Farewell;
use crate::input::Input;
use crate::peer::Peer;
use crate::protocol::{Ending, Protocol};
use crate::stream::Stream;
use crate::trim;
use leeward_core::units::{Nanos, Time};

/// A connection that has been told why it ends has this long to take it and to end its own half.
pub(super) const LINGER: Nanos = Nanos::from_secs(1);
/// A connection from which nothing has come for so long needs no buffer.
const IDLE: Nanos = Nanos::from_secs(1);
/// A connection that has memory for a long request has this long to go on with it while others wait for such memory.
const HURRY: Nanos = Nanos::from_secs(5);
/// Bytes that are read and thrown away meanwhile: more than the largest value that a client may be in the middle of sending.
pub(super) const DISCARDED: usize = 1 << 22;
/// Connections of a core that may linger; the others end at once, so that faulty peers can't hold descriptors.
pub(super) const LINGERING: usize = 256;

impl<P: Protocol> Local<P> {
    /// Ends a connection that owes nothing more. One that has been told why goes on listening for a moment: closing with
    /// unread bytes would reset the connection, and what it was told could be lost with it.
    pub(super) fn part<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> Fate {
        let lingers = peer.ending_since.is_some() && !peer.has_ended && self.ending <= LINGERING;
        if lingers && peer.stream.shutdown().is_ok() { self.discard(peer) } else { Fate::Goes }
    }

    /// Reads what comes from a connection that is ending and throws it away, up to its end.
    pub(super) fn discard<S: Stream>(&mut self, peer: &mut Peer<P, S>) -> Fate {
        let left = peer.stream.discard(&mut peer.discarded, DISCARDED);
        peer.has_ended |= left == Farewell::End;
        match left {
            Farewell::More => Fate::Stays,
            // It may still take what is left for it.
            Farewell::End if peer.out.unsent() > 0 => Fate::Stays,
            Farewell::End | Farewell::Enough => Fate::Goes,
        }
    }

    /// Sweeps a connection that is silent, stuck in a request, or doesn't read.
    fn sweep<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) -> Fate {
        let limits = self.limits;
        if !peer.may_be_read(&limits) {
            // The rest of its request may be there.
            peer.part_since = peer.part_since.map(|_| now);
        }
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        // Whether it still has to take something or only to end its half.
        let ending = if peer.out.unsent() > 0 { limits.stuck } else { LINGER };
        let may_be_read_again = P::on_sweep(&mut peer.connection) | peer.share.sweep();
        let is_idle = P::owed(&peer.connection) == 0 && peer.out.unsent() == 0;
        if self.is_far_and_gone(peer, now) {
            return Fate::Goes;
        }
        let (stuck, behind) = self.backlog.patience(limits.stuck);
        let takes_too_little = longer(peer.out.stuck_since(), stuck) || longer(peer.out.behind_since(), behind);
        if takes_too_little || longer(peer.ending_since, ending) {
            return Fate::Goes;
        }
        if peer.ending_since.is_some() {
            return Fate::Stays;
        }
        if is_idle && limits.silence.is_some_and(|silence| now.since(peer.heard) > silence) {
            return self.end(peer, protocol, Ending::Silence, now);
        }
        let part = if peer.room > 0 && self.room.is_short { limits.part.min(HURRY) } else { limits.part };
        if is_idle && now.since(peer.heard) > IDLE {
            P::input(&mut peer.connection).release();
            peer.out.release();
            if peer.room > 0 {
                // Others may have what it had.
                let _ = peer.finds_room(&mut self.room);
            }
        }
        if longer(peer.part_since, part) {
            return self.end(peer, protocol, Ending::SlowRequest, now);
        }
        if may_be_read_again || std::mem::take(&mut peer.is_short) {
            self.read_later(peer);
        }
        Fate::Stays
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Ends connections that are silent, stuck in a request, or don't read, and pauses that are over.
    pub(super) fn sweep(&mut self, now: Time) {
        for slot in 0..self.peers.places() {
            let Some(peer) = self.peers.at(slot) else { continue };
            let fate = self.local.sweep(peer, &mut self.protocol, now);
            self.follow(slot, fate, now);
        }
        self.local.room.is_short = false;
        self.local.shares.sweep();
        if self.local.room.is_over() | self.local.backlog.is_over() | self.crowd.is_over(self.peers.open()) {
            trim::give_back();
        }
        if let Some(inbound) = &mut self.inbound {
            // A ration that was used up is there again.
            inbound.door_has_more = inbound.door.is_some();
        }
        self.sweep_handshakes(now);
        // Out of descriptors, the listener says nothing more by itself.
        self.accept(now);
    }
}
