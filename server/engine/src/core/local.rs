//! All that a core has besides its peers, and what it does with one peer that is handed in.

use super::{Fate, Flush};
use crate::backlog::{self, Backlog};
use crate::carrier::Outbound;
use crate::fair_shares::FairShares;
use crate::handle::Handle;
use crate::input::Input;
use crate::job::{ConnectionId, Job};
use crate::limits::Limits;
use crate::peer::Peer;
use crate::protocol::{After, Ending, Protocol};
use crate::readiness::{PollWaits, Readiness};
use crate::receive::Receiver;
use crate::room::Room;
use crate::spares::Spares;
use crate::stream::Stream;
use crate::visit::Visit;
use leeward_core::server::Admission;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Choices, Counters, add};
use leeward_runtime::cores::Shared;

pub(crate) struct Local<P: Protocol> {
    pub(super) index: usize,
    pub(super) handle: Handle<P>,
    pub(super) admission: Box<dyn Admission>,
    pub(super) limits: Limits,
    pub(super) shares: FairShares,
    pub(super) choices: Choices,
    pub(super) receiver: Receiver,
    pub(super) spares: Spares,
    /// Memory for long requests.
    pub(super) room: Room,
    /// Memory of answers that peers have not taken.
    pub(super) backlog: Backlog,
    /// How many of the connections are ending.
    pub(super) ending: usize,
    pub(super) readiness: Readiness,
    pub(super) waits: PollWaits,
    pub(super) stopping_since: Option<Time>,
    /// Datagrams on their way out, if there are any.
    pub(super) outbound: Option<Outbound>,
    /// Sessions over datagrams that have something to say again if it is not heard, and when the first of them has.
    pub(super) timed: Vec<ConnectionId>,
    pub(super) far_due: Time,
}

impl<P: Protocol> Local<P> {
    pub(crate) fn new(index: usize, handle: Handle<P>, admission: Box<dyn Admission>, limits: Limits) -> Self {
        Local {
            index,
            // A rehearsal wants requests in about the order in which they came, also of connections that each have many waiting.
            shares: FairShares::new(if handle.rehearses() { 1 } else { P::TURN }),
            handle,
            admission,
            limits,
            choices: Choices::new(index),
            receiver: Receiver::new(limits.io_uring),
            spares: Spares::default(),
            room: Room::new(limits.receiving),
            backlog: Backlog::new(limits.sending),
            ending: 0,
            readiness: Readiness::new(),
            waits: PollWaits::default(),
            stopping_since: None,
            outbound: None,
            timed: Vec::new(),
            far_due: Time::NEVER,
        }
    }

    pub(super) fn shared(&self) -> &Shared<Job<P::Call>> {
        &self.handle.shared
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.handle.common.counters[self.index]
    }

    pub(super) fn clock_now(&self) -> Time {
        self.shared().clock.now()
    }

    /// Visit for the protocol to work with. `out` is the connection's output.
    pub(super) fn visit<'a>(
        &'a mut self,
        id: ConnectionId,
        waited: Nanos,
        out: &'a mut Vec<u8>,
        now: Time,
    ) -> Visit<'a, P::Call> {
        Visit {
            now,
            waited,
            id,
            core: self.index,
            limits: &self.limits,
            counters: &self.handle.common.counters[self.index],
            spares: &mut self.spares,
            out,
            longest_answer: usize::MAX,
            is_stopping: self.stopping_since.is_some(),
            admission: self.admission.as_mut(),
            choices: &mut self.choices,
            shared: &self.handle.shared,
            watch: self.handle.common.watch.as_deref(),
        }
    }

    // ---- the delay of packets ----

    /// The network is looked at: `awake` if the core has not slept for it.
    pub(super) fn begin_look(&mut self, now: Time, awake: bool) {
        self.waits.begin(now, awake);
        self.shares.begin_poll();
        // From here on the messages themselves tell how long they have waited.
        self.shared().packets.publish(self.index, now, Nanos::ZERO, false);
    }

    /// A message has waited for so long: known before the first decision that it bears on.
    pub(super) fn find(&mut self, waited: Nanos, now: Time) {
        if let Some(waited) = self.waits.find(waited, now) {
            self.shared().packets.publish(self.index, now, waited, true);
        }
    }

    /// Ends a look at the network. Messages that were read wait no longer. Messages that were left have waited as long
    /// as those that were read before them. Messages that come while this core is busy with its tasks wait from the
    /// moment at which it looked away.
    pub(super) fn end_look(&mut self, now: Time, anything: bool, more: bool) {
        let left = if more { self.waits.found() } else { Nanos::ZERO };
        self.shared().packets.publish(self.index, now, left, anything);
        // At a look that ends a sleep nothing is found to have waited for want of cores.
        self.shared().packets.note_found(self.index, self.waits.found());
    }

    // ---- one peer ----

    /// Has a connection read at the next look at the network: once, however often this is asked.
    pub(super) fn read_later<S: Stream>(&mut self, peer: &mut Peer<P, S>) {
        self.readiness.read_later(&mut peer.listed, peer.id);
    }

    pub(super) fn mark_dirty<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) {
        self.readiness.flush_later(&mut peer.listed, peer.id.slot, now);
    }

    pub(super) fn flush<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> Fate {
        let began = self.clock_now();
        let writes = usize::from(peer.out.unsent() > 0);
        let sent = peer.send(now, &mut self.outbound).ok();
        if peer.stream.is_far() {
            // Counted when the datagrams go.
            self.remember(peer);
        } else {
            self.count_writes(writes, sent.unwrap_or(0), began);
        }
        self.flushed(peer, sent.is_some())
    }

    pub(super) fn count_writes(&self, count: usize, bytes: usize, began: Time) {
        let counters = self.counters();
        add(&counters.writes, count as u64);
        add(&counters.bytes_written, bytes as u64);
        add(&counters.writing_ns, self.clock_now().since(began).0);
    }

    /// A connection's socket has taken what it takes, or has failed.
    pub(super) fn flushed<S: Stream>(&mut self, peer: &mut Peer<P, S>, is_well: bool) -> Fate {
        self.backlog.change(&mut peer.backlog, peer.out.held());
        if !is_well {
            return Fate::Goes;
        }
        peer.takes = if P::BOUNDS_ANSWERS { peer.out.takes_much() } else { peer.out.stuck_since().is_none() };
        if peer.is_over() {
            return self.part(peer);
        }
        if peer.readable && peer.may_be_read(&self.limits) {
            // It had not been read for want of room; now there is some.
            self.read_later(peer);
        }
        Fate::Stays
    }

    /// Answers a call of this peer.
    pub(super) fn answer<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        done: P::Done,
        now: Time,
        flush: Flush,
    ) -> Fate {
        let unsent = peer.out.unsent();
        let mut visit = self.visit(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let after = protocol.answer(&mut peer.connection, done, &mut visit);
        peer.out.added(peer.out.unsent().saturating_sub(unsent));
        match after {
            After::GoOn => {}
            After::Pause => peer.share.refuse(),
            After::End(why) => return self.end(peer, protocol, why, now),
        }
        // Whether the socket has room for it is known first.
        let is_long = peer.out.unsent() > backlog::SHORT;
        if P::IS_SERIAL && !is_long && P::input(&mut peer.connection).buffered() > 0 && peer.may_be_read(&self.limits) {
            peer.turned = now;
            if FairShares::is_poll_due(now.since(self.waits.polled())) {
                // Its turn is over: others may have something to say by now.
                peer.held_back = false;
                self.read_later(peer);
            } else if self.handle(peer, protocol, Nanos::ZERO, now) == Fate::Goes {
                // What stands behind it has waited for its own client's requests only, which is no queue of the server's.
                return Fate::Goes;
            }
        }
        // Nothing of this client's is left that could share the write: waiting would win nothing.
        let is_last = P::owed(&peer.connection) == 0;
        let is_far = peer.stream.is_far();
        if is_last && (flush == Flush::AtOnce || is_long || (self.receiver.batch.is_none() && !is_far)) {
            let fate = self.flush(peer, now);
            if is_far {
                self.send_datagrams();
            }
            return fate;
        }
        self.mark_dirty(peer, now);
        Fate::Stays
    }

    /// The controller gives this peer an explicit credit.
    pub(super) fn credit<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut visit = self.visit(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        if protocol.credit(&mut peer.connection, &mut visit) {
            add(&self.counters().credits, 1);
            self.mark_dirty(peer, now);
        }
    }

    /// Says why, sends what can be sent, and has the connection end.
    pub(super) fn end<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, why: Ending, now: Time) -> Fate {
        if peer.ending_since.is_none() {
            peer.ending_since = Some(now);
            self.ending += 1;
            let mut visit = self.visit(peer.id, Nanos::ZERO, peer.out.bytes(), now);
            let abandoned = protocol.refuse(&mut peer.connection, why, &mut visit);
            add(&self.counters().abandoned, abandoned as u64);
        }
        self.flush(peer, now)
    }

    /// The connection goes. Its session's window goes back to the pool, exactly once.
    pub(super) fn close<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut visit = self.visit(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let abandoned = protocol.close(&mut peer.connection, &mut visit);
        self.room.change(&mut peer.room, 0);
        self.backlog.change(&mut peer.backlog, 0);
        let counters = self.counters();
        add(&counters.abandoned, abandoned as u64);
        add(&counters.connections, 1u64.wrapping_neg());
        self.ending -= usize::from(peer.ending_since.is_some());
    }
}
