//! A core: its peers, read, decided and answered by this core alone.
//!
//! - `local`: all that a core has besides its peers. `peers`: the places of connections.
//! - `reading`, `writing`, `ending`: what is done with one peer, or with several at once. `datagrams`: frames that come one by one.
//! - `handshakes`: connections whose handshake is not over.
//!
//! A peer is looked up once per event; what is done with it from there on has it by reference, and says at the end whether
//! it stays ([`Fate`]).

mod datagrams;
mod ending;
mod handshakes;
mod local;
mod peers;
mod reading;
#[cfg(all(test, not(loom)))]
mod tests;
mod writing;

use crate::acceptor::Acceptor;
use crate::batch::messages::Outgoing;
use crate::carrier::{Carrier, Outbound};
use crate::datagrams::Inbound;
use crate::guest::{self, Guest};
use crate::handle::{Handle, Message};
use crate::job::{ConnectionId, Job, Parcel};
use crate::peer::Peer;
use crate::pending_handshakes::PendingHandshakes;
use crate::protocol::{Ending, Protocol, Ran};
use crate::stream::Stream;
use crate::trim::{self, Tide};
use leeward_core::server::{SessionSlot, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_host::add;
use leeward_observe::Stage;
use leeward_runtime::Network;
use leeward_runtime::tasks::ReadyTask;
pub(crate) use local::Local;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use peers::Peers;
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
const GUEST: Token = Token(usize::MAX - 3);
/// The core's socket for datagrams, and the server's door for strangers.
const DATAGRAMS: Token = Token(usize::MAX - 4);
const DOOR: Token = Token(usize::MAX - 5);
/// All tokens that name no connection.
const ELSE: [Token; 6] = [WAKER, LISTENER, PARKED, GUEST, DATAGRAMS, DOOR];

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
const SWEEP: Nanos = Nanos::from_millis(100);

/// Whether a peer stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fate {
    Stays,
    /// Nothing more can be read or said: its place is to be given back.
    Goes,
}

/// When an answer goes out of which no other of its connection can share the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    AtOnce,
    /// With other connections' in one call, if the kernel can.
    Together,
}

pub(crate) struct Core<P: Protocol, S> {
    protocol: P,
    peers: Peers<P, S>,
    local: Local<P>,
    poll: Poll,
    /// The first core's poll, which this one's is part of while its core is parked.
    first: Option<Registry>,
    events: Events,
    acceptor: Acceptor,
    handshakes: PendingHandshakes<S>,
    guests: Vec<Box<dyn Guest>>,
    /// Whether a guest wants a turn though its descriptor does not say so.
    guests_are_busy: bool,
    messages: Vec<Message<P::Done>>,
    /// Connections that are read at the look under way, besides what the poll says.
    unread: Vec<ConnectionId>,
    ticks_seen: u64,
    next_sweep: Time,
    /// Watch over the number of connections.
    crowd: Tide,
    inbound: Option<Box<Inbound>>,
    /// Sessions over datagrams by their clients' addresses and nonces. Asked when a session begins and ends, and never walked
    /// through.
    places: HashMap<(SocketAddr, u64), ConnectionId>,
}

impl<P: Protocol, S: Stream> Core<P, S> {
    pub(crate) fn new(
        protocol: P,
        local: Local<P>,
        poll: Poll,
        first: Option<Registry>,
        listener: Option<TcpListener>,
        guests: Vec<Box<dyn Guest>>,
    ) -> io::Result<Self> {
        for guest in &guests {
            poll.registry().register(&mut SourceFd(&guest.descriptor()), GUEST, Interest::READABLE)?;
        }
        let acceptor = Acceptor::new(listener, poll.registry(), LISTENER)?;
        let handshakes = PendingHandshakes::new(handshakes::limits(&local.limits));
        Ok(Core {
            protocol,
            peers: Peers::new(),
            local,
            poll,
            first,
            events: Events::with_capacity(BATCH),
            acceptor,
            handshakes,
            guests_are_busy: !guests.is_empty(),
            guests,
            messages: Vec::new(),
            unread: Vec::with_capacity(BATCH),
            ticks_seen: 0,
            inbound: None,
            places: HashMap::new(),
            next_sweep: Time::ZERO,
            crowd: Tide::new(trim::CROWD),
        })
    }

    /// Has the core serve datagrams besides its connections; the first core has the door, too.
    pub(crate) fn serve_datagrams(&mut self, mut socket: UdpSocket, mut inbound: Inbound) -> io::Result<()> {
        self.poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
        if let Some((door, ..)) = &mut inbound.door {
            self.poll.registry().register(door, DOOR, Interest::READABLE)?;
        }
        let outgoing = Outgoing::new(self.local.limits.datagram.bytes());
        self.local.outbound = Some(Outbound { socket, outgoing, sent: (0, 0, 0) });
        self.inbound = Some(Box::new(inbound));
        Ok(())
    }

    /// Whether datagrams may wait of which the poll does not tell again.
    fn has_more_datagrams(&self) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| inbound.has_more || inbound.door_has_more)
    }

    fn handle(&self) -> &Handle<P> {
        &self.local.handle
    }

    // ---- for a front ----

    pub(crate) fn now(&self) -> Time {
        self.local.clock_now()
    }

    /// The poll's own, which is readable while it has something to tell.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Whether the next look has something to do that no socket will tell of.
    pub(crate) fn needs_look(&self) -> bool {
        let has_more = self.acceptor.has_more() || self.guests_are_busy || self.has_more_datagrams();
        let has_more = has_more || self.handshakes.has_turns();
        self.local.readiness.has_unread() || !self.local.readiness.dirty().is_empty() || has_more
    }

    // ---- connections ----

    /// Takes what waits at the listener and deals it out. The sweep tries again for connections that are left.
    fn accept(&mut self, now: Time) {
        if !self.local.shares.may_connect(now) {
            return self.acceptor.wait();
        }
        let began = self.local.clock_now();
        let mail = &self.local.handle.common.mail;
        let may = mail.may_adopt() && self.may_greet();
        let mail = &self.local.handle.common.mail;
        for (core, stream) in self.acceptor.accept(mail.cores(), may) {
            if core == self.local.index {
                self.adopt(stream, now);
            } else {
                self.handle().common.mail.send_adopt(core, Message::Adopt(stream));
            }
        }
        let spent = self.local.clock_now().since(began);
        self.local.shares.charge_connection(spent, now);
    }

    fn adopt(&mut self, stream: TcpStream, now: Time) {
        if let Ok(stream) = S::accept(stream) {
            self.welcome(stream, now);
        }
    }

    /// Begins a connection, or its handshake.
    fn welcome(&mut self, mut stream: S, now: Time) {
        let id = self.peers.reserve();
        if stream.register(self.poll.registry(), Token(id.slot as usize)).is_err() {
            return self.peers.release(id);
        }
        if self.local.handle.common.encryption.is_some() {
            let is_full = self.is_full();
            return self.greet(id, stream, is_full, now);
        }
        self.take_in(id, Carrier::Stream(stream), now);
    }

    /// Whether there are as many connections as there may be, besides the one for which a place has just been reserved.
    fn is_full(&self) -> bool {
        let others = self.peers.open() - 1 - self.handshakes.count();
        others.saturating_sub(self.local.ending.min(ending::LINGERING)) >= self.local.limits.connections
    }

    /// Begins a connection at a place that was reserved for it.
    fn take_in(&mut self, id: ConnectionId, stream: Carrier<S>, now: Time) {
        let is_full = self.is_full();
        let mut out = Vec::new();
        let connection = self.protocol.open(&mut self.local.visit(id, Nanos::ZERO, &mut out, now));
        let mut peer = Peer::new(stream, id, connection, now);
        peer.out.bytes().append(&mut out);
        let counters = self.local.counters();
        add(&counters.connections, 1);
        add(&counters.accepted, 1);
        let refused =
            if is_full { Some(Ending::ConnectionLimit) } else { self.local.stopping_since.map(|_| Ending::Stopping) };
        let fate = match refused {
            Some(why) => self.local.end(&mut peer, &mut self.protocol, why, now),
            None => Fate::Stays,
        };
        self.peers.put(peer);
        self.follow(id.slot, fate, now);
    }

    /// Gives a peer's place back, if that is its fate.
    #[inline]
    fn follow(&mut self, slot: u32, fate: Fate, now: Time) {
        if fate == Fate::Goes {
            self.remove(slot, now);
        }
    }

    #[cold]
    fn remove(&mut self, slot: u32, now: Time) {
        if let Some(mut peer) = self.peers.take(slot) {
            let began = self.local.clock_now();
            peer.stream.deregister(self.poll.registry());
            self.local.close(&mut peer, &mut self.protocol, now);
            if let Some(far) = peer.stream.far() {
                self.forget_far(far);
            }
            self.peers.release(peer.id);
            drop(peer);
            let spent = self.local.clock_now().since(began);
            self.local.shares.charge_connection(spent, now);
        }
    }

    pub(crate) fn flush_all(&mut self, now: Time) {
        self.flush_together(now);
        while let Some(slot) = self.local.readiness.pop_dirty() {
            if let Some(peer) = self.peers.at(slot)
                && peer.listed.flush()
            {
                let fate = self.local.flush(peer, now);
                self.follow(slot, fate, now);
            }
        }
        self.local.send_datagrams();
    }

    /// Reads what was put off.
    fn read_now(&mut self, id: ConnectionId, now: Time) {
        // Another may have its place by now.
        if let Some(peer) = self.peers.get(id) {
            peer.listed.read();
            let fate = self.local.read(peer, &mut self.protocol, now);
            self.follow(id.slot, fate, now);
        }
    }

    // ---- calls ----

    /// Brings the end of a call to the core that answers it.
    fn deliver(&mut self, parcel: Parcel, done: P::Done, now: Time, flush: Flush) {
        let Parcel { home, to } = parcel;
        if home == self.local.index {
            self.answer(to, done, now, flush);
        } else {
            let Handle { common, shared } = self.handle();
            common.mail.leave(home, Message::Done(to, done));
            // Asked afterwards: who comes back to its connections meanwhile looks at its messages first.
            if !shared.looks_after(self.local.index, home) {
                common.mail.wake(home);
            }
        }
    }

    pub(crate) fn answer(&mut self, to: ConnectionId, done: P::Done, now: Time, flush: Flush) {
        self.local.shares.note_answer(now);
        // Its client may have gone: then nobody waits for it.
        if let Some(peer) = self.peers.get(to) {
            let fate = self.local.answer(peer, &mut self.protocol, done, now, flush);
            self.follow(to.slot, fate, now);
        }
    }

    // ---- what is due ----

    fn wake_sessions(&mut self, now: Time) {
        for _ in 0..WAKES_PER_TICK {
            let random = self.local.choices.draw();
            let Some(SessionSlot(slot)) = self.local.admission.next_to_wake(random) else { break };
            if let Some(peer) = self.peers.at(slot) {
                self.local.credit(peer, &mut self.protocol, now);
            }
        }
    }

    fn receive_messages(&mut self, now: Time) {
        let mut messages = std::mem::take(&mut self.messages);
        self.handle().common.mail.receive(self.local.index, &mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Adopt(stream) => {
                    self.handle().common.mail.adopted();
                    self.adopt(stream, now);
                }
                Message::Done(to, done) => self.answer(to, done, now, Flush::AtOnce),
            }
        }
        self.messages = messages;
    }

    fn handle_event(&mut self, token: Token, event: Ready, now: Time) {
        match token {
            // Whoever looks at this poll looks at theirs next.
            WAKER | PARKED => {}
            LISTENER => self.accept(now),
            GUEST => self.guests_are_busy = true,
            DATAGRAMS | DOOR => {
                if let Some(inbound) = &mut self.inbound {
                    inbound.has_more |= token == DATAGRAMS;
                    inbound.door_has_more |= token == DOOR;
                }
            }
            Token(slot) => {
                let slot = slot as u32;
                let Some(peer) = self.peers.at(slot) else { return self.knock(slot, event) };
                peer.hung_up |= event.hung_up;
                peer.readable |= event.readable;
                let mut fate = Fate::Stays;
                if event.writable && peer.out.unsent() > 0 {
                    fate = self.local.flush(peer, now);
                }
                if event.readable && fate == Fate::Stays {
                    fate = self.local.read(peer, &mut self.protocol, now);
                }
                self.follow(slot, fate, now);
            }
        }
    }
}

/// Content of an event, apart from the poll that it is borrowed from.
#[derive(Clone, Copy)]
struct Ready {
    readable: bool,
    writable: bool,
    hung_up: bool,
}

impl From<&Event> for Ready {
    fn from(event: &Event) -> Self {
        let hung_up = event.is_read_closed();
        Ready { readable: event.is_readable() || hung_up || event.is_error(), writable: event.is_writable(), hung_up }
    }
}

impl<P: Protocol, S: Stream> Network for Core<P, S> {
    type Job = Job<P::Call>;

    fn housekeeping(&mut self, now: Time) {
        let Handle { common, shared } = self.handle();
        let delays = || (shared.packets.delay(now), shared.queues.delay(now));
        let ticks = common.pulse.tick(now, || common.counts().load(), delays);
        let has_mail = common.mail.cores() > 1 || P::HAS_TASKS;
        if ticks != self.ticks_seen {
            self.ticks_seen = ticks;
            self.wake_sessions(now);
        }
        if has_mail {
            self.receive_messages(now);
        }
        let is_due =
            |local: &Local<P>| local.readiness.dirty_for(now) >= COALESCE || local.handle.shared.queues.are_empty();
        if !self.local.readiness.dirty().is_empty() && is_due(&self.local) {
            self.flush_all(now);
        }
        self.say_again(now);
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep(now);
        }
        if self.local.stopping_since.is_none() && self.handle().shared.is_stopping() {
            self.local.stopping_since = Some(now);
            self.acceptor.stop(self.poll.registry());
            self.close_handshakes();
        }
    }

    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>> {
        let entered = self.local.clock_now();
        let mut unread = std::mem::take(&mut self.unread);
        self.local.readiness.take_turns(BATCH, &mut unread);
        let has_more = self.acceptor.has_more() || self.guests_are_busy || self.has_more_datagrams();
        let has_more = has_more || self.may_shake(entered);
        let is_idle = unread.is_empty() && self.local.readiness.dirty().is_empty() && !has_more;
        let wait = if is_idle { wait.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = self.local.clock_now();
        let began = if wait.is_zero() { entered } else { now };
        self.local.begin_look(now, wait.is_zero());
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
        let has_shaken = self.shake(now);
        let anything = !unread.is_empty() || !events.is_empty() || has_datagrams || has_shaken;
        unread.clear();
        self.unread = unread;
        if self.guests_are_busy {
            self.guests_are_busy = guest::turn_all(&mut self.guests);
        }
        self.local.send_datagrams();
        let has_more = self.has_more_datagrams();
        let more = self.local.readiness.has_unread() || events.iter().count() == BATCH || has_more;
        self.events = events;
        self.local.end_look(now, anything, more);
        if anything {
            let spent = self.local.clock_now().since(began);
            add(&self.local.counters().reading_ns, spent.0);
        }
        // A server that stops does not wait for its clients to fall silent.
        Ok((anything && self.local.stopping_since.is_none()).then_some(began))
    }

    fn run(&mut self, _: Time, job: Job<P::Call>) -> Option<ReadyTask> {
        let Job { parcel, arrived, queued, is_admitted, call } = job;
        let began = self.local.clock_now();
        let waited = began.since(arrived);
        if let Some(watch) = &self.local.handle.common.watch {
            watch.waited(self.local.index, Stage::Worker, began.since(queued));
        }
        if is_admitted && let Verdict::Reject(reason) = self.local.admission.execute(waited) {
            self.deliver(parcel, P::late(call, reason), began, Flush::Together);
            return None;
        }
        let method = P::method(&call);
        let done = match self.protocol.execute(call, arrived, waited, &mut self.local.spares) {
            Ran::Task(task) => return Some(task),
            Ran::Done(done) => done,
        };
        let now = self.local.clock_now();
        if let Some(watch) = &self.local.handle.common.watch {
            watch.worked(self.local.index, method, now.since(began));
        }
        let flush = if now.since(began) < QUICK { Flush::Together } else { Flush::AtOnce };
        self.deliver(parcel, done, now, flush);
        if now.since(began) >= COALESCE {
            self.flush_all(now);
        }
        None
    }

    fn next_timeout(&self) -> Time {
        // Sessions without credit wait for the controller's ticks: with any session there is no long sleep.
        let has_sessions = self.peers.open() > 0;
        let due = if has_sessions { self.next_sweep.min(self.handle().common.pulse.due()) } else { self.next_sweep };
        let due = if self.handshakes.has_turns() { due.min(self.local.waits.polled() + HANDSHAKES_WAIT) } else { due };
        due.min(self.local.far_due)
    }

    fn is_drained(&mut self, now: Time) -> bool {
        let since = *self.local.stopping_since.get_or_insert(now);
        let patience_is_over = now.since(since) > self.local.limits.drain;
        // What was said to calls that have come just now is no reason to stay.
        self.flush_all(now);
        if self.peers.any(|peer| P::owed(&peer.connection) > 0 || peer.out.unsent() > 0) && !patience_is_over {
            return false;
        }
        for slot in 0..self.peers.places() {
            if let Some(peer) = self.peers.at(slot) {
                let _ = self.local.end(peer, &mut self.protocol, Ending::Stopped, now);
                self.follow(slot, Fate::Goes, now);
            }
        }
        self.local.send_datagrams();
        true
    }

    fn park(&mut self) -> io::Result<()> {
        let Some(first) = &self.first else { return Err(io::ErrorKind::Unsupported.into()) };
        first.register(&mut SourceFd(&self.poll.as_raw_fd()), PARKED, Interest::READABLE)
    }

    fn unpark(&mut self) -> io::Result<()> {
        let Some(first) = &self.first else { return Ok(()) };
        first.deregister(&mut SourceFd(&self.poll.as_raw_fd()))
    }
}
