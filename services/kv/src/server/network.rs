//! One core's network: its connections, read, decided and answered by this core alone. A connection's requests are executed
//! one after another, as its client expects; those of different connections go through the run queues, and idle cores steal
//! them.

use super::builder::unix_seconds;
use super::connection::{Connection, ConnectionId};
use super::shared::{Common, Done, End, Job, Message, Ticket, add};
use crate::protocol::{After, Concern, Executor, Next, Request};
use crate::store::{PAGE, Visit};
use leeward_control::budget::Budget;
use leeward_control::server::{Admission, Arrival, CoreId, Departure, Opened, Outcome, Session, SessionSlot, Verdict};
use leeward_control::units::{CreditId, Nanos, Priority, Time};
use leeward_rpc::server::IoUring;
use leeward_rpc::server::parts::{Acceptor, Came, Choices, Received, Receiver};
use leeward_runtime::Network;
use leeward_runtime::budget;
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::{ReadyTask, Work};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The poll's token of what is no connection.
pub(super) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);

/// Connections that one poll looks at before the core turns to its requests.
const BATCH: usize = 16;
/// Sessions that a control tick may name on a core.
const WAKES_PER_TICK: usize = 64;
/// Requests of one connection that are answered in one look without having been admitted.
const ANSWERS_PER_LOOK: usize = 64;
/// An answer whose client has sent more already waits this long for company.
const COALESCE: Nanos = Nanos(20_000);
/// A request's memory that is kept for the connection's next one, in bytes.
const KEPT_REQUEST: usize = 16 * 1024;
/// Look for silent and stuck peers this often.
const SWEEP: Nanos = Nanos::from_millis(100);

/// What bounds a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections of this core.
    pub(super) connections: usize,
    /// Bytes that may wait for a peer; nothing of it is read while more do.
    pub(super) unsent: usize,
    /// A connection from which nothing has come for this long ends.
    pub(super) silence: Option<Nanos>,
    /// A connection that takes longer for one request ends.
    pub(super) part: Nanos,
    /// A connection that takes nothing for this long ends.
    pub(super) stuck: Nanos,
    /// A stop waits this long for answers to go out.
    pub(super) drain: Nanos,
    /// Queueing delay that a request may spend.
    pub(super) budget: Budget,
}

pub(super) struct CoreNetwork {
    pub(super) index: usize,
    pub(super) poll: Poll,
    events: Events,
    acceptor: Acceptor,
    shared: Arc<Shared<Job>>,
    pub(super) common: Arc<Common>,
    executor: Arc<Executor>,
    pub(super) admission: Box<dyn Admission>,
    pub(super) limits: Limits,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) tenants: Vec<u32>,
    pub(super) free: Vec<u32>,
    /// How many of the connections are ending.
    pub(super) ending: usize,
    /// Connections with bytes to send.
    dirty: Vec<u32>,
    dirty_since: Time,
    /// Connections to look at, besides those that the poll will name. Each once.
    listed: Vec<ConnectionId>,
    receiver: Receiver,
    /// What a message may have waited for where the kernel does not say: since the last look at the network.
    unseen: Nanos,
    looked: Time,
    /// The longest wait found by the poll under way.
    found: Nanos,
    messages: Vec<Message>,
    spares: Vec<Vec<u8>>,
    ticks_seen: u64,
    next_sweep: Time,
    stopping_since: Option<Time>,
    choices: Choices,
}

impl CoreNetwork {
    #[allow(clippy::too_many_arguments)] // the parts of a core, each made elsewhere
    pub(super) fn new(
        index: usize,
        poll: Poll,
        listener: Option<TcpListener>,
        shared: Arc<Shared<Job>>,
        common: Arc<Common>,
        executor: Arc<Executor>,
        admission: Box<dyn Admission>,
        limits: Limits,
    ) -> io::Result<Self> {
        let acceptor = Acceptor::new(listener, poll.registry(), LISTENER)?;
        Ok(CoreNetwork {
            index,
            poll,
            events: Events::with_capacity(BATCH),
            acceptor,
            shared,
            common,
            executor,
            admission,
            limits,
            connections: Vec::new(),
            tenants: Vec::new(),
            free: Vec::new(),
            ending: 0,
            dirty: Vec::new(),
            dirty_since: Time::ZERO,
            listed: Vec::new(),
            receiver: Receiver::new(IoUring::Off),
            unseen: Nanos::ZERO,
            looked: Time::ZERO,
            found: Nanos::ZERO,
            messages: Vec::new(),
            spares: Vec::new(),
            ticks_seen: 0,
            next_sweep: Time::ZERO,
            stopping_since: None,
            choices: Choices::new(index),
        })
    }

    // ---- connections ----

    /// Takes what waits at the listener and deals it out. What is left the sweep tries again.
    pub(super) fn accept(&mut self, now: Time) {
        for (core, stream) in self.acceptor.accept(self.common.mail.cores(), self.common.mail.may_adopt()) {
            if core == self.index {
                self.adopt(stream, now);
            } else {
                self.common.mail.send_adopt(core, Message::Adopt(stream));
            }
        }
    }

    fn adopt(&mut self, mut stream: TcpStream, now: Time) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        Receiver::prepare(&stream);
        let full = self.are_too_many();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.tenants.push(0);
            self.connections.len() as u32 - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(slot as usize), interest).is_err() {
            self.free.push(slot);
            return;
        }
        let mut session = Session::new(SessionSlot(slot), CoreId(self.index as u32));
        self.admission.open(&mut session, &Opened { now, demand: 0 });
        let tenant = self.tenants[slot as usize];
        self.connections[slot as usize] = Some(Connection::new(stream, tenant, session, PAGE, now));
        let counters = &self.common.counters[self.index];
        add(&counters.connections, 1);
        add(&counters.accepted, 1);
        if full {
            self.end_with(slot, now, b"ERROR Too many open connections\r\n");
        } else if self.stopping_since.is_some() {
            self.end_with(slot, now, b"");
        }
    }

    pub(super) fn flush(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        match connection.flush(now) {
            Err(_) => return self.close(slot, now),
            Ok(count) => add(&self.common.counters[self.index].bytes_written, count as u64),
        }
        if connection.unsent() > 0 || connection.in_flight {
            return;
        }
        if connection.ending_since.is_some() {
            self.part(slot, now);
        } else if connection.readable || connection.decoder.buffered() > 0 || connection.has_ended {
            // It may not have been looked at for want of room; now there is some.
            self.look_later(slot);
        }
    }

    fn flush_all(&mut self, now: Time) {
        while let Some(slot) = self.dirty.pop() {
            if let Some(connection) = &mut self.connections[slot as usize] {
                connection.dirty = false;
                self.flush(slot, now);
            }
        }
    }

    fn mark_dirty(&mut self, slot: u32, now: Time) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && !connection.dirty
        {
            connection.dirty = true;
            if self.dirty.is_empty() {
                self.dirty_since = now;
            }
            self.dirty.push(slot);
        }
    }

    /// Has a connection looked at at the next look at the network: once, however often this is asked.
    fn look_later(&mut self, slot: u32) {
        if let Some(connection) = &mut self.connections[slot as usize]
            && !connection.listed
        {
            connection.listed = true;
            self.listed.push(ConnectionId { slot, tenant: connection.tenant });
        }
    }

    /// Whether a connection's next request may be begun, and so whether it is to be read.
    pub(super) fn may_read(&self, slot: u32) -> bool {
        self.connections[slot as usize].as_ref().is_some_and(|connection| {
            !connection.in_flight && connection.ending_since.is_none() && connection.unsent() < self.limits.unsent
        })
    }

    // ---- requests ----

    /// Begins a connection's next request, of what has been read and then of what can be.
    fn look(&mut self, slot: u32, now: Time) {
        let Some(connection) = &self.connections[slot as usize] else { return };
        if connection.ending_since.is_some() {
            return self.discard(slot, now);
        }
        if connection.decoder.buffered() > 0 && self.may_read(slot) {
            self.decode(slot, now);
        }
        if !self.may_read(slot) {
            if let Some(connection) = &mut self.connections[slot as usize] {
                connection.held_back = true;
            }
            return;
        }
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        if connection.listed || !connection.readable {
            // What it has is somebody else's turn first; or there is nothing to read but its end.
            // What it has asked for before it goes out first.
            if connection.has_ended && !connection.listed && connection.unsent() == 0 {
                self.close(slot, now);
            }
            return;
        }
        match connection.read(&mut self.receiver) {
            Err(_) => self.close(slot, now),
            Ok(Received { came, bytes, waited }) => {
                connection.heard = now;
                // An end that came together with the last bytes is no event of its own: only reading finds it.
                let more = came == Came::More || (connection.hung_up && came != Came::End);
                connection.readable = more;
                connection.has_ended |= came == Came::End;
                // What waited because this connection was not to be read says nothing about the server's queues.
                let waited = if connection.held_back { Nanos::ZERO } else { waited.unwrap_or(self.unseen) };
                connection.held_back &= more;
                connection.arrived = Time(now.0.saturating_sub(waited.0));
                add(&self.common.counters[self.index].bytes_read, bytes as u64);
                if waited > self.found {
                    // Known before the first decision that it bears on.
                    self.found = waited;
                    self.shared.packets.publish(self.index, now, waited, true);
                }
                self.decode(slot, now);
                if more || came == Came::End {
                    self.look_later(slot);
                }
            }
        }
    }

    /// Decodes until a request is on its way, or nothing whole is left.
    fn decode(&mut self, slot: u32, now: Time) {
        for _ in 0..ANSWERS_PER_LOOK {
            if !self.may_read(slot) {
                return;
            }
            let Some(connection) = &mut self.connections[slot as usize] else { return };
            match connection.decoder.next(&mut connection.request) {
                Next::Nothing => {
                    let waits = connection.decoder.buffered() > 0;
                    connection.part_since = waits.then(|| connection.part_since.unwrap_or(now));
                    return;
                }
                Next::Close => return self.end_with(slot, now, b""),
                Next::Reply(reply) => {
                    connection.out.bytes().extend_from_slice(reply);
                    self.mark_dirty(slot, now);
                }
                Next::Request => self.begin(slot, now),
            }
            if let Some(connection) = &mut self.connections[slot as usize] {
                connection.part_since = None;
            }
        }
        // It is the others' turn.
        self.look_later(slot);
    }

    /// Has a decoded request executed, or answers it at once.
    fn begin(&mut self, slot: u32, now: Time) {
        let random = self.choices.draw();
        let delay = self.shared.delay(now);
        let is_stopping = self.stopping_since.is_some();
        let counters = &self.common.counters[self.index];
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let concern = Executor::concern(&connection.request);
        if concern == Concern::Nothing {
            let visit = Visit::at(unix_seconds());
            let after = self.executor.execute(&connection.request, &visit, connection.out.bytes());
            self.mark_dirty(slot, now);
            if after == Ok(After::Close) {
                self.end_with(slot, now, b"");
            }
            return;
        }
        let counted = concern == Concern::Items;
        let mut admitted = true;
        if counted {
            add(&counters.received, 1);
            let arrival =
                Arrival::new(now).with_priority(Priority::from_random(random)).with_delay(delay).with_random(random);
            let (verdict, ticket) = connection.session.request(self.admission.as_mut(), &arrival);
            connection.ticket = Some(ticket);
            admitted = verdict == Verdict::Admit && !is_stopping;
        }
        if admitted {
            connection.in_flight = true;
            let ticket = Ticket { slot, tenant: connection.tenant, arrived: connection.arrived, counted };
            let request = std::mem::take(&mut connection.request);
            let job = Job { home: self.index, ticket, request };
            self.shared.queues.push(self.index, now, Work::Job(job));
            return;
        }
        add(&counters.dropped, 1);
        let departure = departure(now, Outcome::Dropped, now.since(connection.arrived));
        if let Some(ticket) = connection.ticket.take() {
            let _ = connection.session.reply(self.admission.as_mut(), ticket, &departure);
        }
        Self::say(connection, Executor::busy(&connection.request));
        self.mark_dirty(slot, now);
    }

    /// Refuses a request, and what belongs to it and has not been decoded.
    fn say(connection: &mut Connection, words: &[u8]) {
        connection.out.bytes().extend_from_slice(words);
        connection.decoder.skip_parts();
    }

    /// Brings what has become of a job to the core that answers it.
    fn deliver(&mut self, home: usize, done: Done, now: Time) {
        if home == self.index {
            self.answer(done, now);
        } else {
            self.common.mail.send(home, Message::Done(done));
        }
    }

    fn answer(&mut self, done: Done, now: Time) {
        let Done { ticket, request, reply, end } = done;
        let slot = ticket.slot;
        let counters = &self.common.counters[self.index];
        if let Some(connection) = self.connections[slot as usize].as_mut().filter(|c| c.tenant == ticket.tenant) {
            connection.in_flight = false;
            let busy = Executor::busy(&request);
            // What follows it in the buffer has waited for its own client's requests only, which is no queue of the server's.
            connection.arrived = now;
            // One large request is no reason to keep so much for ever.
            connection.request = if request.capacity() <= KEPT_REQUEST { request } else { Request::default() };
            connection.out.bytes().extend_from_slice(&reply);
            let (outcome, counter) = match end {
                End::Executed(_) | End::Panicked => (Outcome::Completed, &counters.completed),
                End::Late => (Outcome::Dropped, &counters.dropped),
                End::Refused => (Outcome::Dropped, &counters.refused),
            };
            if let Some(owed) = connection.ticket.take() {
                add(counter, 1);
                let departure = departure(now, outcome, now.since(ticket.arrived));
                let _ = connection.session.reply(self.admission.as_mut(), owed, &departure);
            }
            if outcome == Outcome::Dropped {
                Self::say(connection, busy);
            }
            self.mark_dirty(slot, now);
            match end {
                End::Executed(After::Close) => self.end_with(slot, now, b""),
                End::Panicked => self.end_with(slot, now, b"SERVER_ERROR internal error\r\n"),
                _ => self.decode(slot, now),
            }
            // Nothing more of this client's is under way that could share the write: waiting would win nothing.
            let is_last = self.connections[slot as usize].as_ref().is_some_and(|connection| !connection.in_flight);
            if is_last {
                self.flush(slot, now);
            }
        }
        self.keep(reply);
    }

    /// Keeps a buffer for the next reply, if it is one and no giant.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spares.len() < 256 && (1..=16 * 1024).contains(&buffer.capacity()) {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    // ---- what is due ----

    /// A memcached client hears nothing of credits. The controller's lists are emptied all the same.
    fn wake_sessions(&mut self, now: Time) {
        for _ in 0..WAKES_PER_TICK {
            let random = self.choices.draw();
            let Some(SessionSlot(slot)) = self.admission.next_to_wake(random) else { break };
            if let Some(connection) = self.connections[slot as usize].as_mut() {
                let _ = self.admission.wake(&mut connection.session, now);
            }
        }
    }

    fn handle_event(&mut self, token: Token, event: Ready, now: Time) {
        match token {
            WAKER => {}
            LISTENER => self.accept(now),
            Token(slot) => {
                let slot = slot as u32;
                let Some(connection) = self.connections.get_mut(slot as usize).and_then(Option::as_mut) else { return };
                connection.readable |= event.readable;
                connection.hung_up |= event.hung_up;
                if event.writable && connection.unsent() > 0 {
                    self.flush(slot, now);
                }
                if event.readable {
                    self.look(slot, now);
                }
            }
        }
    }
}

/// What an event says, apart from the poll that it is borrowed from.
#[derive(Clone, Copy)]
struct Ready {
    readable: bool,
    writable: bool,
    hung_up: bool,
}

impl Network for CoreNetwork {
    type Job = Job;

    fn housekeeping(&mut self, now: Time) {
        let shared = &self.shared;
        let delays = || (shared.packets.delay(now), shared.queues.delay(now));
        let ticks = self.common.pulse.tick(now, || self.common.load(), delays);
        if ticks != self.ticks_seen {
            self.ticks_seen = ticks;
            self.wake_sessions(now);
        }
        if self.common.mail.cores() > 1 {
            let mut messages = std::mem::take(&mut self.messages);
            self.common.mail.receive(self.index, &mut messages);
            for message in messages.drain(..) {
                match message {
                    Message::Adopt(stream) => {
                        self.common.mail.adopted();
                        self.adopt(stream, now);
                    }
                    Message::Done(done) => self.answer(done, now),
                }
            }
            self.messages = messages;
        }
        if !self.dirty.is_empty() && (now.since(self.dirty_since) >= COALESCE || self.shared.queues.are_empty()) {
            self.flush_all(now);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep(now);
        }
        if self.stopping_since.is_none() && self.shared.is_stopping() {
            self.stopping_since = Some(now);
            self.acceptor.stop(self.poll.registry());
        }
    }

    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>> {
        let entered = self.shared.clock.now();
        let listed = std::mem::take(&mut self.listed);
        let is_idle = listed.is_empty() && self.dirty.is_empty() && !self.acceptor.has_more();
        let wait = if is_idle { wait.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = self.shared.clock.now();
        let began = if wait.is_zero() { entered } else { now };
        // After a sleep what is there has just come.
        self.unseen = if wait.is_zero() { now.since(self.looked) } else { Nanos::ZERO };
        self.looked = now;
        self.found = Nanos::ZERO;
        // From here on the messages themselves tell how long they have waited.
        self.shared.packets.publish(self.index, now, Nanos::ZERO, false);
        for id in &listed {
            // Another may have its place by now.
            if let Some(connection) = &mut self.connections[id.slot as usize]
                && connection.tenant == id.tenant
            {
                connection.listed = false;
                self.look(id.slot, now);
            }
        }
        if self.acceptor.has_more() {
            self.accept(now);
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let hung_up = event.is_read_closed();
            let readable = event.is_readable() || hung_up || event.is_error();
            let ready = Ready { readable, writable: event.is_writable(), hung_up };
            self.handle_event(event.token(), ready, now);
        }
        let anything = !listed.is_empty() || !events.is_empty();
        let more = !self.listed.is_empty() || events.iter().count() == BATCH;
        self.events = events;
        let left = if more { self.found } else { Nanos::ZERO };
        self.shared.packets.publish(self.index, now, left, anything);
        // A server that stops does not wait for its clients to fall silent.
        Ok((anything && self.stopping_since.is_none()).then_some(began))
    }

    fn run(&mut self, _: Time, job: Job) -> Option<ReadyTask> {
        let Job { home, ticket, request } = job;
        let began = self.shared.clock.now();
        let waited = began.since(ticket.arrived);
        if ticket.counted && self.admission.execute(waited) != Verdict::Admit {
            let done = Done { ticket, request, reply: Vec::new(), end: End::Late };
            self.deliver(home, done, began);
            return None;
        }
        let mut reply = self.spares.pop().unwrap_or_default();
        let mut may_spend = self.limits.budget;
        may_spend.charge(waited);
        let visit = Visit::at(unix_seconds());
        let (end, _) = budget::with(may_spend, || execute(&self.executor, &request, &visit, &mut reply));
        let now = self.shared.clock.now();
        self.deliver(home, Done { ticket, request, reply, end }, now);
        None
    }

    fn next_timeout(&self) -> Time {
        let has_connections = self.free.len() < self.connections.len();
        if has_connections { self.next_sweep.min(self.common.pulse.due()) } else { self.next_sweep }
    }

    fn is_drained(&mut self, now: Time) -> bool {
        let since = *self.stopping_since.get_or_insert(now);
        let patience_is_over = now.since(since) > self.limits.drain;
        self.flush_all(now);
        let owes = self.connections.iter().flatten().any(|c| c.in_flight || c.unsent() > 0);
        if owes && !patience_is_over {
            return false;
        }
        for slot in 0..self.connections.len() as u32 {
            self.close(slot, now);
        }
        true
    }
}

/// A memcached client names no credit.
fn departure(now: Time, outcome: Outcome, sojourn: Nanos) -> Departure {
    Departure { now, outcome, sojourn, credit: CreditId::NONE }
}

/// Executes a request; a panic is a defect of one connection.
fn execute(executor: &Executor, request: &Request, visit: &Visit, reply: &mut Vec<u8>) -> End {
    match catch_unwind(AssertUnwindSafe(|| executor.execute(request, visit, reply))) {
        Ok(Ok(after)) => End::Executed(after),
        Ok(Err(_)) => End::Refused,
        Err(_) => {
            reply.clear();
            End::Panicked
        }
    }
}
