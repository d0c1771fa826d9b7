//! All that a core has besides its peers, and what it does with one peer that is handed in.

use super::{FlushMode, PeerOutcome};
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
    /// Memory of answers that peers have not taken.
    pub(super) backlog: Backlog,
    /// How many of the connections are ending.
    pub(super) closing: usize,
    pub(super) readiness: Readiness,
    pub(super) waits: PollWaits,
    pub(super) stopping_since: Option<Time>,
    /// Datagrams on their way out, if there are any.
    pub(super) outbound: Option<OutboundDatagrams>,
    /// Sessions over datagrams that have something to say again if it is not heard, and when the first of them has.
    pub(super) timed: Vec<ConnectionId>,
    pub(super) retransmit_due: Time,
}

impl<P: Protocol> CoreState<P> {
    pub(crate) fn new(index: usize, handle: Handle<P>, admission: Box<dyn Admission>, limits: Limits) -> Self {
        CoreState {
            index,
            // A rehearsal wants requests in about the order in which they came, also of connections that each have many waiting.
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

    /// Visit for the protocol to work with. `out` is the connection's output.
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
            watch: self.handle.engine.watch.as_deref(),
        }
    }

    // ---- the delay of packets ----

    /// The network is looked at: `awake` if the core has not slept for it.
    pub(super) fn begin_poll(&mut self, now: Time, awake: bool) {
        self.waits.begin(now, awake);
        self.shares.begin_poll();
        // From here on the messages themselves tell how long they have waited.
        self.shared().packets.publish(self.index, now, Nanos::ZERO, false);
    }

    /// A message has waited for so long: known before the first decision that it bears on.
    pub(super) fn note_wait(&mut self, waited: Nanos, now: Time) {
        if let Some(waited) = self.waits.note(waited, now) {
            self.shared().packets.publish(self.index, now, waited, true);
        }
    }

    /// Ends a look at the network. Messages that were read wait no longer. Messages that were left have waited as long
    /// as those that were read before them. Messages that come while this core is busy with its tasks wait from the
    /// moment at which it looked away.
    pub(super) fn end_poll(&mut self, now: Time, anything: bool, more: bool) {
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

    pub(super) fn flush<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> PeerOutcome {
        let began = self.clock_now();
        let writes = usize::from(peer.out.unsent() > 0);
        let sent = peer.send(now, &mut self.outbound).ok();
        if peer.stream.is_datagram() {
            // Counted when the datagrams go.
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

    /// A connection's socket has taken what it takes, or has failed.
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
            // It had not been read for want of room; now there is some.
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
        let mut visit = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let after = protocol.answer(&mut peer.connection, done, &mut visit);
        peer.out.note_answer(peer.out.unsent().saturating_sub(unsent));
        match after {
            AnswerOutcome::Continue => {}
            AnswerOutcome::Pause => peer.share.refuse(),
            AnswerOutcome::Close(why) => return self.end(peer, protocol, why, now),
        }
        // Whether the socket has room for it is known first.
        let is_long = peer.out.unsent() > backlog::SHORT_ANSWER;
        if P::IS_SERIAL && !is_long && P::input(&mut peer.connection).buffered() > 0 && peer.may_be_read(&self.limits) {
            peer.quantum_end = now;
            if FairShares::is_poll_due(now.since(self.waits.polled())) {
                // Its turn is over: others may have something to say by now.
                peer.held_back = false;
                self.read_later(peer);
            } else if self.handle_requests(peer, protocol, Nanos::ZERO, now) == PeerOutcome::Close {
                // What stands behind it has waited for its own client's requests only, which is no queue of the server's.
                return PeerOutcome::Close;
            }
        }
        // Nothing of this client's is left that could share the write: waiting would win nothing.
        let is_last = P::unanswered(&peer.connection) == 0;
        let is_far = peer.stream.is_datagram();
        if is_last && (flush == FlushMode::Immediate || is_long || (self.receiver.batch.is_none() && !is_far)) {
            let fate = self.flush(peer, now);
            if is_far {
                self.send_datagrams();
            }
            return fate;
        }
        self.mark_dirty(peer, now);
        PeerOutcome::Keep
    }

    /// The controller gives this peer an explicit credit.
    pub(super) fn credit<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut visit = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        if protocol.send_credit(&mut peer.connection, &mut visit) {
            add(&self.counters().credits, 1);
            self.mark_dirty(peer, now);
        }
    }

    /// Says why, sends what can be sent, and has the connection end.
    pub(super) fn end<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        why: CloseReason,
        now: Time,
    ) -> PeerOutcome {
        if peer.closing_since.is_none() {
            peer.closing_since = Some(now);
            self.closing += 1;
            let mut visit = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
            let abandoned = protocol.close_with(&mut peer.connection, why, &mut visit);
            add(&self.counters().abandoned, abandoned as u64);
        }
        self.flush(peer, now)
    }

    /// The connection goes. Its session's window goes back to the pool, exactly once.
    pub(super) fn close<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, now: Time) {
        let mut visit = self.context(peer.id, Nanos::ZERO, peer.out.bytes(), now);
        let abandoned = protocol.close(&mut peer.connection, &mut visit);
        self.receive_budget.resize(&mut peer.receive_grant, 0);
        self.backlog.change(&mut peer.backlog, 0);
        let counters = self.counters();
        add(&counters.abandoned, abandoned as u64);
        add(&counters.connections, 1u64.wrapping_neg());
        self.closing -= usize::from(peer.closing_since.is_some());
    }
}
