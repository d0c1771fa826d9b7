//! Reads connections: the order, the quantum of each, and the wait of the bytes read.

use super::{BATCH, Core, CoreState, PeerOutcome, RESERVED_TOKENS, ReadyEvent};
use crate::backlog;
use crate::batch::{BUFFER_BYTES, SOCKETS};
use crate::fair_shares::QuantumCounts;
use crate::input::Input;
use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::{Protocol, ProtocolEvent};
use crate::receive::{ReadOutcome, ReadState};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_host::add;
use mio::{Events, Token};
use std::io;

/// Whole requests of a connection that were not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remainder {
    Empty,
    /// Other connections are read first.
    Deferred,
    /// The connection must not be read.
    HeldBack,
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Reads this poll's connections, [`SOCKETS`] with a system call, if the kernel supports it and
    /// there are several. The bytes stay in the protocols' buffers until [`CoreState::read`]
    /// handles them.
    pub(super) fn read_ahead(&mut self, unread: &[ConnectionId], events: &Events) {
        let Core { peers, state: local, .. } = self;
        if local.receiver.batch.is_none() {
            return;
        }
        let put_off = unread.iter().map(|id| id.slot as usize);
        let readable = events.iter().filter(|event| ReadyEvent::from(*event).readable).map(|event| event.token());
        let found = readable.filter(|token| !RESERVED_TOKENS.contains(token)).map(|Token(slot)| slot);
        let (mut slots, mut sizes, mut count) = ([0; 2 * BATCH], [0; 2 * BATCH], 0);
        for slot in put_off.chain(found) {
            let Some(peer) = peers.get_slot(slot as u32) else { continue };
            if !peer.may_be_read_ahead(&local.limits) || peer.share.is_idle() {
                continue;
            }
            if count < slots.len() && !slots[..count].contains(&slot) {
                (slots[count], sizes[count]) = (slot, P::input(&mut peer.connection).spare().len().min(BUFFER_BYTES));
                count += 1;
            }
        }
        for (slots, sizes) in slots[..count].chunks(SOCKETS).zip(sizes.chunks(SOCKETS)) {
            self.read_some(slots, sizes);
        }
    }

    /// Reads the connections in these slots, each up to its size, if there are several.
    fn read_some(&mut self, slots: &[usize], sizes: &[usize]) {
        let Core { peers, state: local, .. } = self;
        let Some(batch) = local.receiver.batch.as_mut().filter(|_| slots.len() > 1) else { return };
        let socket = |slot: usize| peers.peek(slot).and_then(|peer| peer.stream.raw());
        let Some(first) = socket(slots[0]) else { return };
        // Entries beyond the slots only fill the array and are not read.
        let at = |at: usize| slots.get(at).copied().zip(sizes.get(at).copied());
        let sockets: [_; SOCKETS] = std::array::from_fn(|index| {
            at(index).map_or((first, 0), |(slot, size)| (socket(slot).unwrap_or(first), size))
        });
        batch.receive(&sockets[..slots.len()]);
        let mut longest = Nanos::ZERO;
        for (at, (slot, size)) in slots.iter().zip(sizes).enumerate() {
            let Some(peer) = peers.get_slot(*slot as u32) else { continue };
            peer.receive_ahead(*size, batch.received(at));
            if let Some(Ok(received)) = &peer.ahead {
                longest = longest.max(peer.queueing_delay(received, Nanos::ZERO, local.waits.polled()));
            }
        }
        if batch.is_broken() {
            local.receiver.batch = None;
        }
        local.note_wait(longest, local.waits.polled());
    }
}

impl<P: Protocol> CoreState<P> {
    /// Returns whether this poll leaves a connection to the next one.
    fn is_put_off<S: Stream>(&mut self, peer: &Peer<P, S>) -> bool {
        let (clock, polled) = (&self.handle.shared.clock, self.waits.polled());
        self.shares.is_put_off(&peer.share, || clock.now().since(polled))
    }

    /// Reads a connection once and handles the bytes.
    pub(super) fn read<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) -> PeerOutcome {
        if let Some(outcome) = peer.ahead.take() {
            return self.handle_read(peer, protocol, outcome, now);
        }
        if peer.closing_since.is_some() {
            return self.discard(peer);
        }
        if self.is_put_off(peer) {
            // Its wait for its own messages is no queueing delay of the server. From here on it
            // waits for this core's tasks, as others do.
            peer.quantum_end = now;
            self.read_later(peer);
            return PeerOutcome::Keep;
        }
        if P::input(&mut peer.connection).buffered() > 0 {
            // Besides an incomplete request, these may be requests that an earlier quantum left.
            let waited = if peer.held_back { Nanos::ZERO } else { now.since(peer.quantum_end) };
            match self.handle_requests(peer, protocol, waited, now) {
                PeerOutcome::Close => return PeerOutcome::Close,
                PeerOutcome::Keep if peer.listed.is_unread() => return PeerOutcome::Keep,
                PeerOutcome::Keep => {}
            }
        }
        if peer.closing_since.is_some() {
            return self.discard(peer);
        }
        if !peer.may_be_read(&self.limits)
            || !peer.reserve_memory(&mut self.receive_budget)
            || self.longest_answer(peer) == 0
        {
            peer.held_back = true;
            // The end of an unread connection is not seen, but a broken one can receive nothing any
            // more. The poll reports both as a hang-up.
            let is_broken = peer.hung_up && peer.stream.is_broken();
            return if is_broken { PeerOutcome::Close } else { PeerOutcome::Keep };
        }
        if peer.has_ended {
            peer.readable = false;
            return self.flush(peer, now);
        }
        let outcome = peer.receive(&mut self.receiver);
        self.handle_read(peer, protocol, outcome, now)
    }

    fn handle_read<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        outcome: io::Result<ReadOutcome>,
        now: Time,
    ) -> PeerOutcome {
        let Ok(received) = outcome else { return PeerOutcome::Close };
        let ReadOutcome { state: read_state, bytes, .. } = received;
        peer.last_received = now;
        add(&self.counters().bytes_read, bytes as u64);
        // An end that arrived together with the last bytes causes no event. Only another read finds
        // it.
        let more = read_state == ReadState::More || (peer.hung_up && read_state != ReadState::End);
        peer.readable = more;
        let waited = peer.queueing_delay(&received, self.waits.unseen(), now);
        peer.held_back &= more;
        self.note_wait(waited, now);
        if read_state != ReadState::Empty {
            self.shares.count_read(&mut peer.share, bytes.max(peer.stream.ciphertext_bytes()));
        }
        // Decrypting a record costs as much as parsing a message.
        let parts = peer.stream.parts();
        if parts > 0 {
            self.shares.count_messages(&mut peer.share, parts);
        }
        let fate = self.handle_requests(peer, protocol, waited, now);
        if fate == PeerOutcome::Close {
            return fate;
        }
        if peer.receive_grant > 0 {
            // Returns a grant that is no longer needed.
            let _ = peer.reserve_memory(&mut self.receive_budget);
        }
        if read_state == ReadState::End && peer.closing_since.is_none() {
            // A peer that has ended its half may still wait for responses.
            if !P::answers_half_closed(&peer.connection) {
                return PeerOutcome::Close;
            }
            peer.has_ended = true;
            return self.flush(peer, now);
        }
        if read_state == ReadState::End {
            return self.discard(peer);
        }
        if more {
            self.read_later(peer);
        }
        PeerOutcome::Keep
    }

    /// Longest response to the connection's next request for which there is memory. A short
    /// response is always allowed for a connection whose socket is not full. For 0 the scan tries
    /// again.
    fn longest_answer<S: Stream>(&self, peer: &mut Peer<P, S>) -> usize {
        let longest = match self.backlog.admits(peer.drains_output) {
            true if peer.out.exceeds_stalled_limit(self.limits.unsent) && !self.backlog.is_plentiful() => 0,
            true => usize::MAX,
            false if P::BOUNDS_ANSWERS && peer.out.stuck_since().is_none() => backlog::SHORT_ANSWER,
            false => 0,
        };
        peer.is_short_of_memory |= longest == 0;
        longest
    }

    /// Handles whole requests while the connection may be read. One read can bring more than a
    /// connection may have unanswered; the rest stays in the buffer.
    pub(super) fn handle_requests<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        waited: Nanos,
        now: Time,
    ) -> PeerOutcome {
        let (mut remainder, mut counts) = (Remainder::HeldBack, QuantumCounts::default());
        let mut close = None;
        // Requests of a held-back connection may already be in its buffer.
        let is_held_back = peer.closing_since.is_some() || peer.share.is_paused();
        let longest = if is_held_back { 0 } else { self.longest_answer(peer) };
        if longest > 0 {
            let unsent_max = peer.out.unsent_limit(self.limits.unsent).min(longest) + peer.out.sent();
            let (quantum, unsent) = (self.shares.quantum(), peer.out.unsent());
            let mut context = self.context(peer.id, waited, peer.out.bytes(), now);
            context.longest_answer = longest;
            remainder = loop {
                if context.out.len() >= unsent_max || !P::may_read(&peer.connection) {
                    break Remainder::HeldBack;
                }
                if counts.handled == quantum {
                    break Remainder::Deferred;
                }
                counts.handled += 1;
                match protocol.next(&mut peer.connection, &mut context) {
                    ProtocolEvent::Handled => counts.messages += 1,
                    // Other connections first, and only within a share of the time. Many clients
                    // that send far beyond their windows would otherwise take all of it.
                    ProtocolEvent::Violation => {
                        if counts.violate() {
                            break Remainder::Deferred;
                        }
                    }
                    ProtocolEvent::Rejected => counts.decided = true,
                    ProtocolEvent::Call { call, is_admitted } => {
                        counts.decided = true;
                        context.queue(call, is_admitted);
                    }
                    ProtocolEvent::Incomplete => break Remainder::Empty,
                    ProtocolEvent::Close(why) => {
                        close = Some(why);
                        break Remainder::Empty;
                    }
                }
            };
            peer.out.note_answer(peer.out.unsent().saturating_sub(unsent));
        }
        peer.quantum_end = now;
        self.shares.end_quantum(&mut peer.share, &counts);
        // Requests of a paused connection wait for its own messages, which is no delay of others.
        peer.held_back |= peer.share.is_paused();
        // Requests that are left count as unread.
        peer.readable |= remainder != Remainder::Empty;
        peer.held_back |= remainder == Remainder::HeldBack;
        peer.partial_since = match remainder {
            Remainder::Empty if P::input(&mut peer.connection).buffered() == 0 => None,
            // The quantum got as far as the incomplete request.
            Remainder::Empty if counts.handled > 1 => Some(now),
            Remainder::Empty => peer.partial_since.or(Some(now)),
            Remainder::Deferred | Remainder::HeldBack => None,
        };
        if let Some(why) = close {
            return self.end(peer, protocol, why, now);
        }
        if counts.violations > 0 {
            self.shares.count_violations(&mut peer.share, counts.violations);
            // Requests behind a violation wait for their own client, which is no delay of others.
            peer.held_back = true;
        }
        if remainder == Remainder::Deferred && !peer.share.is_paused() {
            self.read_later(peer);
        }
        if peer.out.unsent() > 0 || P::is_closing(&peer.connection) {
            self.mark_dirty(peer, now);
        }
        PeerOutcome::Keep
    }
}
