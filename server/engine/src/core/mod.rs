//! A core: its peers, read, decided and answered by this core alone.
//!
//! - `local`: all that a core has besides its peers. `peers`: the places of connections.
//! - `reading`, `writing`, `ending`: what is done with one peer, or with several at once. `datagrams`: frames that come one by one.
//! - `handshakes`: connections whose handshake is not over.
//!
//! A peer is looked up once per event; what is done with it from there on has it by reference, and says at the end whether
//! it stays ([`Fate`]).

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

/// The poll's token of what is no connection.
pub(crate) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// The polls of parked cores, in the first core's.
const PARKED: Token = Token(usize::MAX - 2);
/// Token of everything that is polled besides connections.
const EVENT_SOURCE: Token = Token(usize::MAX - 3);
/// The core's socket for datagrams, and the server's door for strangers.
const DATAGRAMS: Token = Token(usize::MAX - 4);
const VALIDATION: Token = Token(usize::MAX - 5);
/// All tokens that name no connection.
const RESERVED_TOKENS: [Token; 6] = [WAKER, LISTENER, PARKED, EVENT_SOURCE, DATAGRAMS, VALIDATION];

/// Connections that one poll looks at before the core turns to its tasks (the published server's budget is 16 packets).
const BATCH: usize = 16;
/// Explicit credits that one control tick may cause on a core.
const WAKES_PER_TICK: usize = 64;
/// An answer whose client has more calls under way waits for company this long, then goes out: a write costs as much as
/// several microseconds of work.
const COALESCE: Nanos = Nanos(20_000);
/// An answer that took less than this to make waits for those of other connections, up to [`COALESCE`]: going out together
/// spares each a microsecond or two, which is no bargain for a client that would have to wait longer than that.
const QUICK: Nanos = Nanos(2_000);
/// Handshakes for which there is no time yet are tried again after so long.
const HANDSHAKES_WAIT: Nanos = Nanos(500_000);
/// Look for silent and stuck peers this often.
const SCAN_PERIOD: Nanos = Nanos::from_millis(100);

/// Whether a peer stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum PeerOutcome {
    Keep,
    /// Nothing more can be read or said: its place is to be given back.
    Close,
}

/// When an answer goes out of which no other of its connection can share the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushMode {
    Immediate,
    /// With other connections' in one call, if the kernel can.
    Batched,
}

pub(crate) struct Core<P: Protocol, S> {
    protocol: P,
    peers: ConnectionTable<P, S>,
    state: CoreState<P>,
    poll: Poll,
    /// The first core's poll, which this one's is part of while its core is parked.
    first_registry: Option<Registry>,
    events: Events,
    acceptor: Acceptor,
    handshakes: PendingHandshakes<S>,
    event_sources: Vec<Box<dyn EventSource>>,
    /// Whether a guest wants a turn though its descriptor does not say so.
    sources_are_busy: bool,
    messages: Vec<CoreMessage<P::Completion>>,
    /// Connections that are read at the look under way, besides what the poll says.
    unread: Vec<ConnectionId>,
    ticks_seen: u64,
    next_scan: Time,
    /// Watch over the number of connections.
    connection_peak: HighWaterMark,
    inbound: Option<Box<InboundDatagrams>>,
    /// Sessions over datagrams by their clients' addresses and nonces. Asked when a session begins and ends, and never walked
    /// through.
    datagram_sessions: HashMap<(SocketAddr, u64), ConnectionId>,
}

impl<P: Protocol, S: Stream> Core<P, S> {
    pub(crate) fn new(
        protocol: P,
        local: CoreState<P>,
        poll: Poll,
        first: Option<Registry>,
        listener: Option<TcpListener>,
        guests: Vec<Box<dyn EventSource>>,
    ) -> io::Result<Self> {
        for guest in &guests {
            poll.registry().register(&mut SourceFd(&guest.descriptor()), EVENT_SOURCE, Interest::READABLE)?;
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
            sources_are_busy: !guests.is_empty(),
            event_sources: guests,
            messages: Vec::new(),
            unread: Vec::with_capacity(BATCH),
            ticks_seen: 0,
            inbound: None,
            datagram_sessions: HashMap::new(),
            next_scan: Time::ZERO,
            connection_peak: HighWaterMark::new(trim::MANY_CONNECTIONS),
        })
    }

    /// Has the core serve datagrams besides its connections; the first core has the door, too.
    pub(crate) fn serve_datagrams(&mut self, mut socket: UdpSocket, mut inbound: InboundDatagrams) -> io::Result<()> {
        self.poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
        if let Some((door, ..)) = &mut inbound.validation_socket {
            self.poll.registry().register(door, VALIDATION, Interest::READABLE)?;
        }
        let outgoing = Outgoing::new(self.state.limits.datagram.bytes());
        self.state.outbound = Some(OutboundDatagrams { socket, outgoing, sent: (0, 0, 0) });
        self.inbound = Some(Box::new(inbound));
        Ok(())
    }

    /// Whether datagrams may wait of which the poll does not tell again.
    fn has_more_datagrams(&self) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| inbound.has_more || inbound.validation_has_more)
    }

    fn handle(&self) -> &Handle<P> {
        &self.state.handle
    }

    // ---- for a front ----

    pub(crate) fn now(&self) -> Time {
        self.state.clock_now()
    }

    /// The poll's own, which is readable while it has something to tell.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Whether the next look has something to do that no socket will tell of.
    pub(crate) fn needs_poll(&self) -> bool {
        let has_more = self.acceptor.has_more() || self.sources_are_busy || self.has_more_datagrams();
        let has_more = has_more || self.handshakes.has_ready();
        self.state.readiness.has_unread() || !self.state.readiness.dirty().is_empty() || has_more
    }

    // ---- connections ----

    /// Takes what waits at the listener and deals it out. The sweep tries again for connections that are left.
    fn accept(&mut self, now: Time) {
        if !self.state.shares.may_connect(now) {
            return self.acceptor.wait();
        }
        let began = self.state.clock_now();
        let mail = &self.state.handle.engine.mailboxes;
        let may = mail.may_adopt() && self.may_begin_handshake();
        let mail = &self.state.handle.engine.mailboxes;
        for (core, stream) in self.acceptor.accept(mail.cores(), may) {
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

    /// Whether there are as many connections as there may be, besides the one for which a place has just been reserved.
    fn is_full(&self) -> bool {
        let others = self.peers.open() - 1 - self.handshakes.count();
        others.saturating_sub(self.state.closing.min(closing::LINGERING)) >= self.state.limits.connections
    }

    /// Begins a connection at a place that was reserved for it.
    fn open_connection(&mut self, id: ConnectionId, stream: ConnectionIo<S>, now: Time) {
        let is_full = self.is_full();
        let mut out = Vec::new();
        let connection = self.protocol.open(&mut self.state.context(id, Nanos::ZERO, &mut out, now));
        let mut peer = Peer::new(stream, id, connection, now);
        peer.out.bytes().append(&mut out);
        let counters = self.state.counters();
        add(&counters.connections, 1);
        add(&counters.accepted, 1);
        let refused = if is_full {
            Some(CloseReason::ConnectionLimit)
        } else {
            self.state.stopping_since.map(|_| CloseReason::Stopping)
        };
        let fate = match refused {
            Some(why) => self.state.end(&mut peer, &mut self.protocol, why, now),
            None => PeerOutcome::Keep,
        };
        self.peers.put(peer);
        self.apply_outcome(id.slot, fate, now);
    }

    /// Gives a peer's place back, if that is its fate.
    #[inline]
    fn apply_outcome(&mut self, slot: u32, fate: PeerOutcome, now: Time) {
        if fate == PeerOutcome::Close {
            self.remove(slot, now);
        }
    }

    #[cold]
    fn remove(&mut self, slot: u32, now: Time) {
        if let Some(mut peer) = self.peers.take(slot) {
            let began = self.state.clock_now();
            peer.stream.deregister(self.poll.registry());
            self.state.close(&mut peer, &mut self.protocol, now);
            if let Some(far) = peer.stream.datagram_session() {
                self.end_datagram_session(far);
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
                let fate = self.state.flush(peer, now);
                self.apply_outcome(slot, fate, now);
            }
        }
        self.state.send_datagrams();
    }

    /// Reads what was put off.
    fn read_now(&mut self, id: ConnectionId, now: Time) {
        // Another may have its place by now.
        if let Some(peer) = self.peers.get(id) {
            peer.listed.read();
            let fate = self.state.read(peer, &mut self.protocol, now);
            self.apply_outcome(id.slot, fate, now);
        }
    }

    // ---- calls ----

    /// Brings the end of a call to the core that answers it.
    fn deliver(&mut self, parcel: ReplyAddress, done: P::Completion, now: Time, flush: FlushMode) {
        let ReplyAddress { core: home, connection: to } = parcel;
        if home == self.state.index {
            self.answer(to, done, now, flush);
        } else {
            let Handle { engine: common, shared } = self.handle();
            common.mailboxes.leave(home, CoreMessage::Completion(to, done));
            // Asked afterwards: who comes back to its connections meanwhile looks at its messages first.
            if !shared.is_polled_by(self.state.index, home) {
                common.mailboxes.wake(home);
            }
        }
    }

    pub(crate) fn answer(&mut self, to: ConnectionId, done: P::Completion, now: Time, flush: FlushMode) {
        self.state.shares.note_answer(now);
        // Its client may have gone: then nobody waits for it.
        if let Some(peer) = self.peers.get(to) {
            let fate = self.state.answer(peer, &mut self.protocol, done, now, flush);
            self.apply_outcome(to.slot, fate, now);
        }
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
            // Whoever looks at this poll looks at theirs next.
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
                let mut fate = PeerOutcome::Keep;
                if event.writable && peer.out.unsent() > 0 {
                    fate = self.state.flush(peer, now);
                }
                if event.readable && fate == PeerOutcome::Keep {
                    fate = self.state.read(peer, &mut self.protocol, now);
                }
                self.apply_outcome(slot, fate, now);
            }
        }
    }
}

/// Content of an event, apart from the poll that it is borrowed from.
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
        let has_mail = common.mailboxes.cores() > 1 || P::HAS_TASKS;
        if ticks != self.ticks_seen {
            self.ticks_seen = ticks;
            self.wake_sessions(now);
        }
        if has_mail {
            self.receive_messages(now);
        }
        let is_due =
            |local: &CoreState<P>| local.readiness.dirty_for(now) >= COALESCE || local.handle.shared.queues.are_empty();
        if !self.state.readiness.dirty().is_empty() && is_due(&self.state) {
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
        let has_shaken = self.step_handshake(now);
        let anything = !unread.is_empty() || !events.is_empty() || has_datagrams || has_shaken;
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
        // A server that stops does not wait for its clients to fall silent.
        Ok((anything && self.state.stopping_since.is_none()).then_some(began))
    }

    fn run(&mut self, _: Time, job: Job<P::Call>) -> Option<ReadyTask> {
        let Job { reply_to: parcel, arrival: arrived, queued, is_admitted, call } = job;
        let began = self.state.clock_now();
        let waited = began.since(arrived);
        if let Some(watch) = &self.state.handle.engine.watch {
            watch.record_wait(self.state.index, WaitStage::Worker, began.since(queued));
        }
        if is_admitted && let Verdict::Reject(reason) = self.state.admission.on_dequeue(waited) {
            self.deliver(parcel, P::reject(call, reason), began, FlushMode::Batched);
            return None;
        }
        let method = P::method(&call);
        let done = match self.protocol.execute(call, arrived, waited, &mut self.state.free_buffers) {
            ExecuteOutcome::Task(task) => return Some(task),
            ExecuteOutcome::Done(done) => done,
        };
        let now = self.state.clock_now();
        if let Some(watch) = &self.state.handle.engine.watch {
            watch.record_cost(self.state.index, method, now.since(began));
        }
        let flush = if now.since(began) < QUICK { FlushMode::Batched } else { FlushMode::Immediate };
        self.deliver(parcel, done, now, flush);
        if now.since(began) >= COALESCE {
            self.flush_all(now);
        }
        None
    }

    fn next_timeout(&self) -> Time {
        // Sessions without credit wait for the controller's ticks: with any session there is no long sleep.
        let has_sessions = self.peers.open() > 0;
        let due = if has_sessions { self.next_scan.min(self.handle().engine.ticker.due()) } else { self.next_scan };
        let due = if self.handshakes.has_ready() { due.min(self.state.waits.polled() + HANDSHAKES_WAIT) } else { due };
        due.min(self.state.retransmit_due)
    }

    fn is_drained(&mut self, now: Time) -> bool {
        let since = *self.state.stopping_since.get_or_insert(now);
        let patience_is_over = now.since(since) > self.state.limits.drain_timeout;
        // What was said to calls that have come just now is no reason to stay.
        self.flush_all(now);
        if self.peers.any(|peer| P::unanswered(&peer.connection) > 0 || peer.out.unsent() > 0) && !patience_is_over {
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
