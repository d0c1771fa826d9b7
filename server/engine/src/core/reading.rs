//! Reading connections: the order of turns, the length of each, and how long the bytes have waited.

use super::{Core, ELSE, Fate, Local, Ready};
use crate::backlog;
use crate::batch::{ROOM, SOCKETS};
use crate::fair_shares::TurnCounts;
use crate::input::Input;
use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::{Next, Protocol};
use crate::receive::{Came, Received};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_host::add;
use mio::{Events, Token};
use std::io;

/// Whole requests of a connection that were not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Other connections have their turn first.
    ForLater,
    /// The connection is not to be read.
    HeldBack,
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Reads those that are to be read now in one system call, if the kernel can and there are several. What came waits in
    /// their buffers until it is their turn, in [`Local::read`].
    pub(super) fn read_ahead(&mut self, unread: &[ConnectionId], events: &Events) {
        let Core { peers, local, .. } = self;
        let Some(batch) = &mut local.receiver.batch else { return };
        let put_off = unread.iter().map(|id| id.slot as usize);
        let readable = events.iter().filter(|event| Ready::from(*event).readable).map(|event| event.token());
        let found = readable.filter(|token| !ELSE.contains(token)).map(|Token(slot)| slot);
        let (mut slots, mut rooms, mut count) = ([0; SOCKETS], [0; SOCKETS], 0);
        for slot in put_off.chain(found) {
            let Some(peer) = peers.at(slot as u32) else { continue };
            if !peer.may_be_read_ahead(&local.limits) || peer.share.is_idle() {
                continue;
            }
            if count < SOCKETS && !slots[..count].contains(&slot) {
                (slots[count], rooms[count]) = (slot, P::input(&mut peer.connection).spare().len().min(ROOM));
                count += 1;
            }
        }
        if count < 2 {
            return;
        }
        let socket = |slot: usize| peers.look(slot).and_then(|peer| peer.stream.raw());
        let Some(first) = socket(slots[0]) else { return };
        // Places beyond `count` are there for the array's sake and not asked for.
        let sockets: [_; SOCKETS] = std::array::from_fn(|at| (socket(slots[at]).unwrap_or(first), rooms[at]));
        batch.receive(&sockets[..count]);
        let mut longest = Nanos::ZERO;
        for at in 0..count {
            let Some(peer) = peers.at(slots[at] as u32) else { continue };
            peer.receive_ahead(rooms[at], batch.received(at));
            if let Some(Ok(received)) = &peer.ahead {
                longest = longest.max(peer.queued(received, Nanos::ZERO, local.waits.polled()));
            }
        }
        if batch.is_broken() {
            local.receiver.batch = None;
        }
        local.find(longest, local.waits.polled());
    }
}

impl<P: Protocol> Local<P> {
    /// Whether this poll leaves a connection to the next one.
    fn is_put_off<S: Stream>(&mut self, peer: &Peer<P, S>) -> bool {
        let (clock, polled) = (&self.handle.shared.clock, self.waits.polled());
        self.shares.is_put_off(&peer.share, || clock.now().since(polled))
    }

    /// Reads a connection once and handles what came.
    pub(super) fn read<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) -> Fate {
        if let Some(outcome) = peer.ahead.take() {
            return self.came(peer, protocol, outcome, now);
        }
        if peer.ending_since.is_some() {
            return self.discard(peer);
        }
        if self.is_put_off(peer) {
            // Its wait behind its own messages is no queueing delay of the server. From here on it waits for
            // this core's tasks, as others do.
            peer.turned = now;
            self.read_later(peer);
            return Fate::Stays;
        }
        if P::input(&mut peer.connection).buffered() > 0 {
            // Besides the beginning of a request these may be requests that were left behind.
            let waited = if peer.held_back { Nanos::ZERO } else { now.since(peer.turned) };
            match self.handle(peer, protocol, waited, now) {
                Fate::Goes => return Fate::Goes,
                Fate::Stays if peer.listed.is_unread() => return Fate::Stays,
                Fate::Stays => {}
            }
        }
        if peer.ending_since.is_some() {
            return self.discard(peer);
        }
        if !peer.may_be_read(&self.limits) || !peer.finds_room(&mut self.room) || self.longest_answer(peer) == 0 {
            peer.held_back = true;
            // Its end is not seen as long as it is not read, but nothing can be sent to it any more.
            return if peer.stream.is_broken() { Fate::Goes } else { Fate::Stays };
        }
        if peer.has_ended {
            peer.readable = false;
            return self.flush(peer, now);
        }
        let outcome = peer.receive(&mut self.receiver);
        self.came(peer, protocol, outcome, now)
    }

    fn came<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        outcome: io::Result<Received>,
        now: Time,
    ) -> Fate {
        let Ok(received) = outcome else { return Fate::Goes };
        let Received { came, bytes, .. } = received;
        peer.heard = now;
        add(&self.counters().bytes_read, bytes as u64);
        // An end that came together with the last bytes is no event of its own: only reading finds it.
        let more = came == Came::More || (peer.hung_up && came != Came::End);
        peer.readable = more;
        let waited = peer.queued(&received, self.waits.unseen(), now);
        peer.held_back &= more;
        self.find(waited, now);
        if came != Came::Nothing {
            self.shares.count_read(&mut peer.share, bytes.max(peer.stream.came()));
        }
        // To take a record apart costs as much as to parse a message.
        let parts = peer.stream.parts();
        if parts > 0 {
            self.shares.count_messages(&mut peer.share, parts);
        }
        let fate = self.handle(peer, protocol, waited, now);
        if fate == Fate::Goes {
            return fate;
        }
        if peer.room > 0 {
            // What was granted and is not needed any more.
            let _ = peer.finds_room(&mut self.room);
        }
        if came == Came::End && peer.ending_since.is_none() {
            // A peer that has said farewell may still be owed answers.
            if !P::outlives_its_peer(&peer.connection) {
                return Fate::Goes;
            }
            peer.has_ended = true;
            return self.flush(peer, now);
        }
        if came == Came::End {
            return self.discard(peer);
        }
        if more {
            self.read_later(peer);
        }
        Fate::Stays
    }

    /// The longest answer to a connection's next request that there is memory for. One that is short may always be made for a
    /// connection that does not wait to take one: a socket has room for it. Where there is none, the sweep tries again.
    fn longest_answer<S: Stream>(&self, peer: &mut Peer<P, S>) -> usize {
        let longest = match self.backlog.admits(peer.takes) {
            true if peer.out.is_lenient(self.limits.unsent) && !self.backlog.is_plentiful() => 0,
            true => usize::MAX,
            false if P::BOUNDS_ANSWERS && peer.out.stuck_since().is_none() => backlog::SHORT,
            false => 0,
        };
        peer.is_short |= longest == 0;
        longest
    }

    /// Handles the requests that are whole, as long as the connection may be read: what one read brings can be more than
    /// a connection may have unanswered. The rest stays where it is.
    pub(super) fn handle<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        waited: Nanos,
        now: Time,
    ) -> Fate {
        let (mut left, mut turn) = (Left::HeldBack, TurnCounts::default());
        let mut ending = None;
        // What is held back may stand in its buffer already.
        let is_held_back = peer.ending_since.is_some() || peer.share.is_paused();
        let longest = if is_held_back { 0 } else { self.longest_answer(peer) };
        if longest > 0 {
            let unsent_max = peer.out.most(self.limits.unsent).min(longest) + peer.out.sent();
            let (quantum, unsent) = (self.shares.quantum(), peer.out.unsent());
            let mut visit = self.visit(peer.id, waited, peer.out.bytes(), now);
            visit.longest_answer = longest;
            left = loop {
                if visit.out.len() >= unsent_max || !P::may_read(&peer.connection) {
                    break Left::HeldBack;
                }
                if turn.handled == quantum {
                    break Left::ForLater;
                }
                turn.handled += 1;
                match protocol.next(&mut peer.connection, &mut visit) {
                    Next::Handled => turn.messages += 1,
                    // Others first, and a share of the time at most: a crowd of those that send much beyond their windows
                    // would else have it all.
                    Next::Unlawful => {
                        if turn.violate() {
                            break Left::ForLater;
                        }
                    }
                    Next::Refused => turn.decided = true,
                    Next::Call { call, is_admitted } => {
                        turn.decided = true;
                        visit.queue(call, is_admitted);
                    }
                    Next::Nothing => break Left::Nothing,
                    Next::End(why) => {
                        ending = Some(why);
                        break Left::Nothing;
                    }
                }
            };
            peer.out.added(peer.out.unsent().saturating_sub(unsent));
        }
        peer.turned = now;
        self.shares.end_turn(&mut peer.share, &turn);
        // What waits behind its messages while it is paused is nobody else's delay.
        peer.held_back |= peer.share.is_paused();
        // Requests that are left count as unread.
        peer.readable |= left != Left::Nothing;
        peer.held_back |= left == Left::HeldBack;
        peer.part_since = match left {
            Left::Nothing if P::input(&mut peer.connection).buffered() == 0 => None,
            // The last look was at the request that is not whole.
            Left::Nothing if turn.handled > 1 => Some(now),
            Left::Nothing => peer.part_since.or(Some(now)),
            Left::ForLater | Left::HeldBack => None,
        };
        if let Some(why) = ending {
            return self.end(peer, protocol, why, now);
        }
        if turn.violations > 0 {
            self.shares.count_violations(&mut peer.share, turn.violations);
            // What waits behind it is nobody else's delay.
            peer.held_back = true;
        }
        if left == Left::ForLater && !peer.share.is_paused() {
            self.read_later(peer);
        }
        if peer.out.unsent() > 0 || P::is_leaving(&peer.connection) {
            self.mark_dirty(peer, now);
        }
        Fate::Stays
    }
}
