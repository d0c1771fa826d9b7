//! Everything of a core besides its peers, and its work on one peer that is passed in.

use super::{COMPANY_DIVISOR, COMPANY_MAX, FlushMode, PeerOutcome};
use crate::backlog::{self, Backlog};
use crate::connection_io::OutboundDatagrams;
use crate::fair_shares::FairShares;
use crate::free_buffers::FreeBuffers;
use crate::handle::Handle;
use crate::input::Input;
use crate::job::{ConnectionId, Job};
use crate::limits::Limits;
use crate::peer::Peer;
use crate::poll_context::PollContext;
use crate::protocol::{AnswerOutcome, CloseReason, Protocol};
use crate::readiness::{PollWaits, Readiness};
use crate::receive::SocketReader;
use crate::receive_budget::ReceiveBudget;
use crate::stream::Stream;
use leeward_core::server::Admission;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Counters, FastRng, add};
use leeward_runtime::cores::Shared;

pub(crate) struct CoreState<P: Protocol> {
    pub(super) index: usize,
    pub(super) handle: Handle<P>,
    pub(super) admission: Box<dyn Admission>,
    pub(super) limits: Limits,
    pub(super) shares: FairShares,
    pub(super) rng: FastRng,
    pub(super) receiver: SocketReader,
    pub(super) free_buffers: FreeBuffers,
    /// Memory for long requests.
    pub(super) receive_budget: ReceiveBudget,
    /// Memory of responses that peers have not taken.
    pub(super) backlog: Backlog,
    /// Number of closing connections.
    pub(super) closing: usize,
    pub(super) readiness: Readiness,
    /// End of a connection's turn, while one runs; and the connection's next call in it.
    pub(super) turn_end: Time,
    pub(super) next: Option<Job<P::Call>>,
    pub(super) waits: PollWaits,
    pub(super) stopping_since: Option<Time>,
    /// Outgoing datagrams, if datagrams are served.
    pub(super) outbound: Option<OutboundDatagrams>,
    /// Sessions with pending retransmissions, and below the time of the first of them.
    pub(super) timed: Vec<ConnectionId>,
    pub(super) retransmit_due: Time,
}

impl<P: Protocol> CoreState<P> {
    pub(crate) fn new(index: usize, handle: Handle<P>, admission: Box<dyn Admission>, limits: Limits) -> Self {
        CoreState {
            index,
            // Shadow mode needs requests in about their order of arrival, also those of connections
            // with many pending.
            shares: FairShares::new(if handle.is_shadow() { 1 } else { P::QUANTUM }),
            handle,
            admission,
            limits,
            rng: FastRng::new(index),
            receiver: SocketReader::new(limits.io_uring),
            free_buffers: FreeBuffers::default(),
            receive_budget: ReceiveBudget::new(limits.receive_memory),
            backlog: Backlog::new(limits.send_memory),
            closing: 0,
            readiness: Readiness::new(),
            turn_end: Time::ZERO,
            next: None,
            waits: PollWaits::default(),
            stopping_since: None,
            outbound: None,
            timed: Vec::new(),
            retransmit_due: Time::NEVER,
        }
    }

    pub(super) fn shared(&self) -> &Shared<Job<P::Call>> {
        &self.handle.shared
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.handle.engine.counters[self.index]
    }

    pub(super) fn clock_now(&self) -> Time {
        self.shared().clock.now()
    }

    /// Makes the context for a protocol. `out` is the connection's output.
    pub(super) fn context<'a>(
        &'a mut self,
        id: ConnectionId,
        waited: Nanos,
        out: &'a mut Vec<u8>,
        now: Time,
    ) -> PollContext<'a, P::Call> {
        PollContext {
            now,
            wait: waited,
            id,
            core: self.index,
            limits: &self.limits,
            counters: &self.handle.engine.counters[self.index],
            free_buffers: &mut self.free_buffers,
            out,
            longest_answer: usize::MAX,
            is_stopping: self.stopping_since.is_some(),
            admission: self.admission.as_mut(),
            rng: &mut self.rng,
            shared: &self.handle.shared,
            next: (now < self.turn_end).then_some(&mut self.next),
            watch: self.handle.engine.watch.as_deref(),
        }
    }

    /// Longest wait of a response for others that can share its write.
    pub(super) fn company_max(&self) -> Nanos {
        Nanos(self.limits.slo.0 / COMPANY_DIVISOR).min(COMPANY_MAX)
    }

    // ---- the delay of packets ----

    /// Begins a poll. `awake`: the core has not slept in it.
    pub(super) fn begin_poll(&mut self, now: Time, awake: bool) {
        self.waits.begin(now, awake);
        self.shares.begin_poll();
        // From here on the messages' own timestamps show how long they waited.
        self.shared().packets.publish(self.index, now, Nanos::ZERO, false);
    }

    /// Notes a message's wait, before the first decision that it affects.
    pub(super) fn note_wait(&mut self, waited: Nanos, now: Time) {
        if let Some(waited) = self.waits.note(waited, now) {
            self.shared().packets.publish(self.index, now, waited, true);
        }
    }

    /// Ends a poll. Messages that were read no longer wait. Messages that were left have waited as
    /// long as those that were read before them. Messages that arrive while the core runs tasks
    /// wait from the end of this poll.
    pub(super) fn end_poll(&mut self, now: Time, anything: bool, more: bool) {
        let left = if more { self.waits.found() } else { Nanos::ZERO };
        self.shared().packets.publish(self.index, now, left, anything);
        // A poll that ended a sleep finds no wait caused by a lack of cores.
        self.shared().packets.note_found(self.index, self.waits.found());
    }

    // ---- one peer ----

    /// Lists a connection to be read at the next poll. Listing it again has no effect.
    pub(super) fn read_later<S: Stream>(&mut self, peer: &mut Peer<P, S>) {
        self.readiness.read_later(&mut peer.listed, peer.id);
    }

    pub(super) fn mark_dirty<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) {
        self.readiness.flush_later(&mut peer.listed, peer.id.slot, now);
    }

    pub(super) fn flush<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> PeerOutcome {
        let began = self.clock_now();
        let writes = usize::from(peer.out.unsent() > 0);
        let sent = peer.send(now, &mut self.outbound).ok();
        if peer.stream.is_datagram() {
            // Counted when the datagrams are sent.
            self.queue_retransmit(peer);
        } else {
            self.count_writes(writes, sent.unwrap_or(0), began);
        }
        self.after_flush(peer, sent.is_some())
    }

    pub(super) fn count_writes(&self, count: usize, bytes: usize, began: Time) {
        let counters = self.counters();
        add(&counters.writes, count as u64);
        add(&counters.bytes_written, bytes as u64);
        add(&counters.writing_ns, self.clock_now().since(began).0);
    }

    /// Handles a connection whose socket took all it could, or failed.
    pub(super) fn after_flush<S: Stream>(&mut self, peer: &mut Peer<P, S>, is_well: bool) -> PeerOutcome {
        self.backlog.change(&mut peer.backlog, peer.out.held());
        if !is_well {
            return PeerOutcome::Close;
        }
        peer.drains_output =
            if P::BOUNDS_ANSWERS { peer.out.reads_long_answers() } else { peer.out.stuck_since().is_none() };
        if peer.is_over() {
            return self.close_or_linger(peer);
        }
        if peer.readable && peer.may_be_read(&self.limits) {
            // The connection was not read for lack of memory, which is free now.
            self.read_later(peer);
        }
        PeerOutcome::Keep
    }

    /// Answers a call of this peer.
    pub(super) fn answer<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        done: P::Completion,
        now: Time,
        flush: FlushMode,
    ) -> PeerOutcome {
        let unsent = peer.out.unsent();
        let mut context = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let after = protocol.answer(&mut peer.connection, done, &mut context);
        peer.out.note_answer(peer.out.unsent().saturating_sub(unsent));
        match after {
            AnswerOutcome::Continue => {}
            AnswerOutcome::Pause => peer.share.refuse(),
            AnswerOutcome::Close(why) => return self.end(peer, protocol, why, now),
        }
        // The next requests run only once it is known whether the socket takes a long response.
        let is_long = peer.out.unsent() > backlog::SHORT_ANSWER;
        if P::IS_SERIAL && !is_long && P::input(&mut peer.connection).buffered() > 0 && peer.may_be_read(&self.limits) {
            peer.quantum_end = now;
            if now >= self.turn_end && FairShares::is_poll_due(now.since(self.waits.polled())) {
                // The quantum is over: other connections may have requests by now.
                peer.held_back = false;
                self.read_later(peer);
            } else if self.handle_requests(peer, protocol, Nanos::ZERO, now) == PeerOutcome::Close {
                // The next request has waited only for its own client's requests, which is no queue
                // of the server.
                return PeerOutcome::Close;
            }
        }
        // No other response is pending, so flush now.
        let is_last = P::unanswered(&peer.connection) == 0;
        let is_datagram = peer.stream.is_datagram();
        if is_last && (flush == FlushMode::Immediate || is_long || (self.receiver.batch.is_none() && !is_datagram)) {
            let outcome = self.flush(peer, now);
            if is_datagram {
                self.send_datagrams();
            }
            return outcome;
        }
        self.mark_dirty(peer, now);
        PeerOutcome::Keep
    }

    /// Passes an explicit credit of the controller to this peer.
    pub(super) fn credit<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut context = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        if protocol.send_credit(&mut peer.connection, &mut context) {
            add(&self.counters().credits, 1);
            self.mark_dirty(peer, now);
        }
    }

    /// Appends the reason, flushes, and closes the connection.
    pub(super) fn end<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        reason: CloseReason,
        now: Time,
    ) -> PeerOutcome {
        if peer.closing_since.is_none() {
            peer.closing_since = Some(now);
            self.closing += 1;
            let mut context = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
            let abandoned = protocol.close_with(&mut peer.connection, reason, &mut context);
            add(&self.counters().abandoned, abandoned as u64);
        }
        self.flush(peer, now)
    }

    /// Removes a connection. Its session's window returns to the pool, exactly once.
    pub(super) fn close<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut context = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let abandoned = protocol.close(&mut peer.connection, &mut context);
        self.receive_budget.resize(&mut peer.receive_grant, 0);
        self.backlog.change(&mut peer.backlog, 0);
        let counters = self.counters();
        add(&counters.abandoned, abandoned as u64);
        add(&counters.connections, 1u64.wrapping_neg());
        self.closing -= usize::from(peer.closing_since.is_some());
    }
}
