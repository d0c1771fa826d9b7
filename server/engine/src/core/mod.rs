//! A core: its connections, which only this core reads, decides about and answers.
//!
//! - `state`: everything of a core besides its peers. `connection_table`: the connections' slots.
//! - `reading`, `writing`, `closing`: work on one peer, or on several at once. `datagrams`: frames
//!   that arrive one by one.
//! - `handshakes`: connections whose handshake is not done.
//!
//! A peer is looked up once per event. Later functions get it by reference and return whether it
//! stays ([`PeerOutcome`]).

mod closing;
mod connection_table;
mod datagrams;
mod handshakes;
mod reading;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod writing;

use crate::acceptor::Acceptor;
use crate::batch::messages::Outgoing;
use crate::connection_io::{ConnectionIo, OutboundDatagrams};
use crate::datagrams::InboundDatagrams;
use crate::event_source::{self, EventSource};
use crate::handle::{CoreMessage, Handle};
use crate::job::{ConnectionId, Job, ReplyAddress};
use crate::peer::Peer;
use crate::pending_handshakes::PendingHandshakes;
use crate::protocol::{CloseReason, ExecuteOutcome, Protocol};
use crate::stream::Stream;
use crate::trim::{self, HighWaterMark};
use connection_table::ConnectionTable;
use leeward_core::server::{SessionSlot, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_host::add;
use leeward_observe::WaitStage;
use leeward_runtime::Network;
use leeward_runtime::tasks::ReadyTask;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
pub(crate) use state::CoreState;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Token of the core's waker.
pub(crate) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// Token of parked cores' polls, in the first core's poll.
const PARKED: Token = Token(usize::MAX - 2);
/// Token of all event sources besides connections.
const EVENT_SOURCE: Token = Token(usize::MAX - 3);
/// Tokens of the core's datagram socket and of the server's address validation socket.
const DATAGRAMS: Token = Token(usize::MAX - 4);
const VALIDATION: Token = Token(usize::MAX - 5);
/// Tokens that name no connection.
const RESERVED_TOKENS: [Token; 6] = [WAKER, LISTENER, PARKED, EVENT_SOURCE, DATAGRAMS, VALIDATION];

/// Connections that one poll reads before the core runs its tasks (the published server's budget is
/// 16 packets).
const BATCH: usize = 16;
/// Maximum explicit credits per control tick and core.
const WAKES_PER_TICK: usize = 64;
/// Part of the objective for which a response may wait for others while calls are queued: a
/// sixteenth. A write costs as much as several microseconds of work, and responses share one.
const COMPANY_DIVISOR: u64 = 16;
/// Longest such wait. More company saves each response little.
const COMPANY_MAX: Nanos = Nanos(20_000);
/// Turn of a connection whose requests run one after the other: those that its client sent at once
/// run in a row, and share a write. Short enough that all connections of a poll have one within an
/// objective.
const TURN: Nanos = Nanos(4_000);
/// Time after which handshakes without quota are tried again.
const HANDSHAKES_WAIT: Nanos = Nanos(500_000);
/// Period of the scan for silent and stuck peers.
const SCAN_PERIOD: Nanos = Nanos::from_millis(100);

/// Whether a peer stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum PeerOutcome {
    Keep,
    /// Nothing more can be read or sent. The slot is to be released.
    Close,
}

/// When a response is flushed if no other of its connection can share the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushMode {
    Immediate,
    /// With other connections' responses in one system call, if the kernel supports it.
    Batched,
}

/// End of a call's run.
enum JobEnd {
    /// The call goes on as a task.
    Task(ReadyTask),
    Answered {
        began: Time,
        now: Time,
    },
}

pub(crate) struct Core<P: Protocol, S> {
    protocol: P,
    peers: ConnectionTable<P, S>,
    state: CoreState<P>,
    poll: Poll,
    /// The first core's poll, which watches this core's poll while this core is parked.
    first_registry: Option<Registry>,
    events: Events,
    acceptor: Acceptor,
    handshakes: PendingHandshakes<S>,
    event_sources: Vec<Box<dyn EventSource>>,
    /// Whether an event source needs a poll that its descriptor does not report.
    sources_are_busy: bool,
    messages: Vec<CoreMessage<P::Completion>>,
    /// Connections to read in the current poll, besides those with events.
    unread: Vec<ConnectionId>,
    ticks_seen: u64,
    next_scan: Time,
    /// High-water mark of the number of connections.
    connection_peak: HighWaterMark,
    inbound: Option<Box<InboundDatagrams>>,
    /// Datagram sessions by client address and nonce. Accessed when a session begins and ends, and
    /// never iterated over.
    datagram_sessions: HashMap<(SocketAddr, u64), ConnectionId>,
}

impl<P: Protocol, S: Stream> Core<P, S> {
    pub(crate) fn new(
        protocol: P,
        local: CoreState<P>,
        poll: Poll,
        first: Option<Registry>,
        listener: Option<TcpListener>,
        sources: Vec<Box<dyn EventSource>>,
    ) -> io::Result<Self> {
        for source in &sources {
            poll.registry().register(&mut SourceFd(&source.descriptor()), EVENT_SOURCE, Interest::READABLE)?;
        }
        let acceptor = Acceptor::new(listener, poll.registry(), LISTENER)?;
        let handshakes = PendingHandshakes::new(handshakes::limits(&local.limits));
        Ok(Core {
            protocol,
            peers: ConnectionTable::new(),
            state: local,
            poll,
            first_registry: first,
            events: Events::with_capacity(BATCH),
            acceptor,
            handshakes,
            sources_are_busy: !sources.is_empty(),
            event_sources: sources,
            messages: Vec::new(),
            unread: Vec::with_capacity(BATCH),
            ticks_seen: 0,
            inbound: None,
            datagram_sessions: HashMap::new(),
            next_scan: Time::ZERO,
            connection_peak: HighWaterMark::new(trim::MANY_CONNECTIONS),
        })
    }

    /// Serves datagrams besides the connections. The first core has the validation socket, too.
    pub(crate) fn serve_datagrams(&mut self, mut socket: UdpSocket, mut inbound: InboundDatagrams) -> io::Result<()> {
        self.poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
        if let Some((entry, ..)) = &mut inbound.validation_socket {
            self.poll.registry().register(entry, VALIDATION, Interest::READABLE)?;
        }
        let outgoing = Outgoing::new(self.state.limits.datagram.bytes());
        self.state.outbound = Some(OutboundDatagrams { socket, outgoing, sent: (0, 0, 0) });
        self.inbound = Some(Box::new(inbound));
        Ok(())
    }

    /// Returns whether datagrams may be pending that the poll does not report again.
    fn has_more_datagrams(&self) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| inbound.has_more || inbound.validation_has_more)
    }

    fn handle(&self) -> &Handle<P> {
        &self.state.handle
    }

    // ---- for an external event loop ----

    pub(crate) fn now(&self) -> Time {
        self.state.clock_now()
    }

    /// The poll's own descriptor, which is readable while the poll has events.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Returns whether the next poll has work that no socket reports.
    pub(crate) fn needs_poll(&self) -> bool {
        let has_more = self.acceptor.has_more() || self.sources_are_busy || self.has_more_datagrams();
        let has_more = has_more || self.handshakes.has_ready();
        self.state.readiness.has_unread() || !self.state.readiness.dirty().is_empty() || has_more
    }

    // ---- connections ----

    /// Accepts pending connections and distributes them. The scan tries again for the rest.
    fn accept(&mut self, now: Time) {
        if !self.state.shares.may_connect(now) {
            return self.acceptor.wait();
        }
        let began = self.state.clock_now();
        let mailboxes = &self.state.handle.engine.mailboxes;
        let may = mailboxes.may_adopt() && self.may_begin_handshake();
        let mailboxes = &self.state.handle.engine.mailboxes;
        for (core, stream) in self.acceptor.accept(mailboxes.cores(), may) {
            if core == self.state.index {
                self.adopt(stream, now);
            } else {
                self.handle().engine.mailboxes.send_adopt(core, CoreMessage::Adopt(stream));
            }
        }
        let spent = self.state.clock_now().since(began);
        self.state.shares.charge_connection(spent, now);
    }

    fn adopt(&mut self, stream: TcpStream, now: Time) {
        if let Ok(stream) = S::accept(stream) {
            self.begin_connection(stream, now);
        }
    }

    /// Begins a connection, or its handshake.
    fn begin_connection(&mut self, mut stream: S, now: Time) {
        let id = self.peers.reserve();
        if stream.register(self.poll.registry(), Token(id.slot as usize)).is_err() {
            return self.peers.release(id);
        }
        if self.state.handle.engine.encryption.is_some() {
            let is_full = self.is_full();
            return self.begin_handshake(id, stream, is_full, now);
        }
        self.open_connection(id, ConnectionIo::Stream(stream), now);
    }

    /// Returns whether the connection limit is reached, not counting the slot just reserved.
    fn is_full(&self) -> bool {
        let permitted = self.state.limits.connections;
        let others = self.peers.open() - 1 - self.handshakes.count();
        others.saturating_sub(self.state.closing.min(closing::lingering(permitted))) >= permitted
    }

    /// Opens a connection in a slot that was reserved for it.
    fn open_connection(&mut self, id: ConnectionId, stream: ConnectionIo<S>, now: Time) {
        let is_full = self.is_full();
        let mut out = Vec::new();
        let connection = self.protocol.open(&mut self.state.context(id, Nanos::ZERO, &mut out, now));
        let mut peer = Peer::new(stream, id, connection, now);
        peer.out.bytes().append(&mut out);
        let counters = self.state.counters();
        add(&counters.connections, 1);
        add(&counters.accepted, 1);
        let rejected = if is_full {
            Some(CloseReason::ConnectionLimit)
        } else {
            self.state.stopping_since.map(|_| CloseReason::Stopping)
        };
        let outcome = match rejected {
            Some(reason) => self.state.end(&mut peer, &mut self.protocol, reason, now),
            None => PeerOutcome::Keep,
        };
        self.peers.put(peer);
        self.apply_outcome(id.slot, outcome, now);
    }

    /// Releases a peer's slot, if the peer is to close.
    #[inline]
    fn apply_outcome(&mut self, slot: u32, outcome: PeerOutcome, now: Time) {
        if outcome == PeerOutcome::Close {
            self.remove(slot, now);
        }
    }

    #[cold]
    fn remove(&mut self, slot: u32, now: Time) {
        if let Some(mut peer) = self.peers.take(slot) {
            let began = self.state.clock_now();
            peer.stream.deregister(self.poll.registry());
            self.state.close(&mut peer, &mut self.protocol, now);
            if let Some(session) = peer.stream.datagram_session() {
                self.end_datagram_session(session);
            }
            self.peers.release(peer.id);
            drop(peer);
            let spent = self.state.clock_now().since(began);
            self.state.shares.charge_connection(spent, now);
        }
    }

    pub(crate) fn flush_all(&mut self, now: Time) {
        self.flush_together(now);
        while let Some(slot) = self.state.readiness.pop_dirty() {
            if let Some(peer) = self.peers.get_slot(slot)
                && peer.listed.flush()
            {
                let outcome = self.state.flush(peer, now);
                self.apply_outcome(slot, outcome, now);
            }
        }
        self.state.send_datagrams();
    }

    /// Reads a connection that an earlier poll put off.
    fn read_now(&mut self, id: ConnectionId, now: Time) {
        // Another connection may have the slot by now.
        if let Some(peer) = self.peers.get(id) {
            peer.listed.read();
            let outcome = self.state.read(peer, &mut self.protocol, now);
            self.apply_outcome(id.slot, outcome, now);
        }
    }

    // ---- calls ----

    /// Delivers a completed call to the core that answers it.
    fn deliver(&mut self, reply_to: ReplyAddress, done: P::Completion, now: Time, flush: FlushMode) {
        let ReplyAddress { core: owner, connection: to } = reply_to;
        if owner == self.state.index {
            self.answer(to, done, now, flush);
        } else {
            let Handle { engine: common, shared } = self.handle();
            common.mailboxes.leave(owner, CoreMessage::Completion(to, done));
            // Asked after the message is left: a core that resumes polling its connections reads
            // its messages first.
            if !shared.is_polled_by(self.state.index, owner) {
                common.mailboxes.wake(owner);
            }
        }
    }

    pub(crate) fn answer(&mut self, to: ConnectionId, done: P::Completion, now: Time, flush: FlushMode) {
        self.state.shares.note_answer(now);
        // The client may have closed the connection.
        if let Some(peer) = self.peers.get(to) {
            let outcome = self.state.answer(peer, &mut self.protocol, done, now, flush);
            self.apply_outcome(to.slot, outcome, now);
        }
    }

    /// Runs a call, and answers it if it ends. The first call of a turn begins that turn.
    fn run_job(&mut self, job: Job<P::Call>, is_first: bool) -> JobEnd {
        let Job { reply_to: address, arrival: arrived, queued, is_admitted, call } = job;
        let began = self.state.clock_now();
        let waited = began.since(arrived);
        if is_first && P::IS_SERIAL && !self.handle().is_shadow() {
            self.state.turn_end = began + TURN;
        }
        if let Some(watch) = &self.state.handle.engine.watch {
            watch.record_wait(self.state.index, WaitStage::Worker, began.since(queued));
        }
        if is_admitted && let Verdict::Reject(reason) = self.state.admission.on_dequeue(waited) {
            self.deliver(address, P::reject(call, reason), began, FlushMode::Batched);
            return JobEnd::Answered { began, now: began };
        }
        let method = P::method(&call);
        let done = match self.protocol.execute(call, arrived, waited, &mut self.state.free_buffers) {
            ExecuteOutcome::Task(task) => {
                self.state.turn_end = Time::ZERO;
                return JobEnd::Task(task);
            }
            ExecuteOutcome::Done(done) => done,
        };
        let now = self.state.clock_now();
        if let Some(watch) = &self.state.handle.engine.watch {
            watch.record_cost(self.state.index, method, now.since(began));
        }
        self.deliver(address, done, now, FlushMode::Batched);
        JobEnd::Answered { began, now }
    }

    // ---- what is due ----

    fn wake_sessions(&mut self, now: Time) {
        for _ in 0..WAKES_PER_TICK {
            let random = self.state.rng.next_u64();
            let Some(SessionSlot(slot)) = self.state.admission.next_to_wake(random) else { break };
            if let Some(peer) = self.peers.get_slot(slot) {
                self.state.credit(peer, &mut self.protocol, now);
            }
        }
    }

    fn receive_messages(&mut self, now: Time) {
        let mut messages = std::mem::take(&mut self.messages);
        self.handle().engine.mailboxes.receive(self.state.index, &mut messages);
        for message in messages.drain(..) {
            match message {
                CoreMessage::Adopt(stream) => {
                    self.handle().engine.mailboxes.adopted();
                    self.adopt(stream, now);
                }
                CoreMessage::Completion(to, done) => self.answer(to, done, now, FlushMode::Immediate),
            }
        }
        self.messages = messages;
    }

    fn handle_event(&mut self, token: Token, event: ReadyEvent, now: Time) {
        match token {
            // The thread that polls this core polls the parked cores next.
            WAKER | PARKED => {}
            LISTENER => self.accept(now),
            EVENT_SOURCE => self.sources_are_busy = true,
            DATAGRAMS | VALIDATION => {
                if let Some(inbound) = &mut self.inbound {
                    inbound.has_more |= token == DATAGRAMS;
                    inbound.validation_has_more |= token == VALIDATION;
                }
            }
            Token(slot) => {
                let slot = slot as u32;
                let Some(peer) = self.peers.get_slot(slot) else { return self.handshake_ready(slot, event) };
                peer.hung_up |= event.hung_up;
                peer.readable |= event.readable;
                let mut outcome = PeerOutcome::Keep;
                if event.writable && peer.out.unsent() > 0 {
                    outcome = self.state.flush(peer, now);
                }
                if event.readable && outcome == PeerOutcome::Keep {
                    outcome = self.state.read(peer, &mut self.protocol, now);
                }
                self.apply_outcome(slot, outcome, now);
            }
        }
    }
}

/// Readiness of an event, copied so that the poll's events are no longer borrowed.
#[derive(Clone, Copy)]
struct ReadyEvent {
    readable: bool,
    writable: bool,
    hung_up: bool,
}

impl From<&Event> for ReadyEvent {
    fn from(event: &Event) -> Self {
        let hung_up = event.is_read_closed();
        ReadyEvent {
            readable: event.is_readable() || hung_up || event.is_error(),
            writable: event.is_writable(),
            hung_up,
        }
    }
}

impl<P: Protocol, S: Stream> Network for Core<P, S> {
    type Job = Job<P::Call>;

    fn housekeeping(&mut self, now: Time) {
        let Handle { engine: common, shared } = self.handle();
        let delays = || (shared.packets.delay(now), shared.queues.delay(now));
        let ticks = common.ticker.tick(now, || common.counts().load(), delays);
        let has_messages = common.mailboxes.cores() > 1 || P::HAS_TASKS;
        if ticks != self.ticks_seen {
            self.ticks_seen = ticks;
            self.wake_sessions(now);
        }
        if has_messages {
            self.receive_messages(now);
        }
        let waited = self.state.readiness.dirty_for(now);
        let is_due = || waited >= self.state.company_max() || self.handle().shared.queues.are_empty();
        if !self.state.readiness.dirty().is_empty() && is_due() {
            self.flush_all(now);
        }
        self.retransmit(now);
        if now >= self.next_scan {
            self.next_scan = now + SCAN_PERIOD;
            self.scan(now);
        }
        if self.state.stopping_since.is_none() && self.handle().shared.is_stopping() {
            self.state.stopping_since = Some(now);
            self.acceptor.stop(self.poll.registry());
            self.close_handshakes();
        }
    }

    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>> {
        let entered = self.state.clock_now();
        let mut unread = std::mem::take(&mut self.unread);
        self.state.readiness.take_unread(BATCH, &mut unread);
        let has_more = self.acceptor.has_more() || self.sources_are_busy || self.has_more_datagrams();
        let has_more = has_more || self.may_handshake(entered);
        let is_idle = unread.is_empty() && self.state.readiness.dirty().is_empty() && !has_more;
        let wait = if is_idle { wait.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = self.state.clock_now();
        let began = if wait.is_zero() { entered } else { now };
        self.state.begin_poll(now, wait.is_zero());
        debug_assert!(self.peers.are_distinct(&unread), "a connection is read once per look");
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        self.handshakes.begin_poll();
        self.read_ahead(&unread, &events);
        for id in &unread {
            self.read_now(*id, now);
        }
        if self.acceptor.has_more() {
            self.accept(now);
        }
        for event in &events {
            self.handle_event(event.token(), event.into(), now);
        }
        let has_datagrams = self.has_more_datagrams() && self.receive_datagrams(now);
        let has_stepped = self.step_handshake(now);
        let anything = !unread.is_empty() || !events.is_empty() || has_datagrams || has_stepped;
        unread.clear();
        self.unread = unread;
        if self.sources_are_busy {
            self.sources_are_busy = event_source::poll_all(&mut self.event_sources);
        }
        self.state.send_datagrams();
        let has_more = self.has_more_datagrams();
        let more = self.state.readiness.has_unread() || events.iter().count() == BATCH || has_more;
        self.events = events;
        self.state.end_poll(now, anything, more);
        if anything {
            let spent = self.state.clock_now().since(began);
            add(&self.state.counters().reading_ns, spent.0);
        }
        // A stopping server does not wait until its clients are silent.
        Ok((anything && self.state.stopping_since.is_none()).then_some(began))
    }

    fn run(&mut self, _: Time, job: Job<P::Call>) -> Option<ReadyTask> {
        let (began, mut now) = match self.run_job(job, true) {
            JobEnd::Task(task) => return Some(task),
            JobEnd::Answered { began, now } => (began, now),
        };
        while let Some(job) = self.state.next.take() {
            match self.run_job(job, false) {
                JobEnd::Task(task) => return Some(task),
                JobEnd::Answered { now: end, .. } => now = end,
            }
        }
        self.state.turn_end = Time::ZERO;
        // The next responses probably take as long as these.
        if !self.state.readiness.may_wait(now, now.since(began), self.state.company_max()) {
            self.flush_all(now);
        }
        None
    }

    fn next_timeout(&self) -> Time {
        // Sessions without credit wait for the controller's ticks, so a core with sessions sleeps
        // no longer than that.
        let has_sessions = self.peers.open() > 0;
        let due = if has_sessions { self.next_scan.min(self.handle().engine.ticker.due()) } else { self.next_scan };
        let due = if self.handshakes.has_ready() { due.min(self.state.waits.polled() + HANDSHAKES_WAIT) } else { due };
        due.min(self.state.retransmit_due)
    }

    fn is_drained(&mut self, now: Time) -> bool {
        let since = *self.state.stopping_since.get_or_insert(now);
        let timed_out = now.since(since) > self.state.limits.drain_timeout;
        // Rejections of calls that have just arrived must not delay the stop.
        self.flush_all(now);
        if self.peers.any(|peer| P::unanswered(&peer.connection) > 0 || peer.out.unsent() > 0) && !timed_out {
            return false;
        }
        for slot in 0..self.peers.slot_count() {
            if let Some(peer) = self.peers.get_slot(slot) {
                let _ = self.state.end(peer, &mut self.protocol, CloseReason::Stopped, now);
                self.apply_outcome(slot, PeerOutcome::Close, now);
            }
        }
        self.state.send_datagrams();
        true
    }

    fn park(&mut self) -> io::Result<()> {
        let Some(first) = &self.first_registry else { return Err(io::ErrorKind::Unsupported.into()) };
        first.register(&mut SourceFd(&self.poll.as_raw_fd()), PARKED, Interest::READABLE)
    }

    fn unpark(&mut self) -> io::Result<()> {
        let Some(first) = &self.first_registry else { return Ok(()) };
        first.deregister(&mut SourceFd(&self.poll.as_raw_fd()))
    }
}
