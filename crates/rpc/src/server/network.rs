//! One core's network: its connections and their sessions, read, decided and answered by this core alone.

mod answers;
mod ending;
mod reading;
mod writing;

use super::acceptor::Acceptor;
use super::choices::Choices;
use super::connection::{Connection, ConnectionId, State};
use super::enforcement::{Enforcement, Ruling};
use super::execute::Execute;
use super::handler::{Failed, Request};
use super::receive::{IoUring, Receiver};
use super::shared::{Common, Executed, Job, Message, Ticket, add};
use crate::statistics;
use crate::wire::{Call, Credit, DropReason, ErrorCode, Frame, PayloadLimit, Pong, Regime, Register, Welcome};
use answers::Flush;
use leeward_control::budget::Budget;
use leeward_control::server::{Admission, Arrival, CoreId, Feedback, Opened, Session, SessionSlot, Verdict};
use leeward_control::units::{Nanos, Time};
use leeward_runtime::Network;
use leeward_runtime::budget;
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::ReadyTask;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The poll's token of what is no connection.
pub(super) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// The polls of parked cores, in the first core's.
const PARKED: Token = Token(usize::MAX - 2);

/// Connections that one poll looks at before the core turns to its tasks (the published server's budget is 16 packets).
const BATCH: usize = 16;
/// Explicit credits that one control tick may cause on a core.
const WAKES_PER_TICK: usize = 64;
/// An answer whose client has more calls under way waits for company this long, then goes out: a write costs as much as
/// several microseconds of work.
const COALESCE: Nanos = Nanos(20_000);
/// An answer that took less than this to make waits for those of other connections, up to [`COALESCE`]: going out together
/// spares each a microsecond or two, which is no bargain for who would have to wait longer than that for the next.
const QUICK: Nanos = Nanos(2_000);
/// Look for silent and stuck peers this often.
const SWEEP: Nanos = Nanos::from_millis(100);

/// What bounds a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) payload: PayloadLimit,
    /// Connections of this core.
    pub(super) connections: usize,
    /// Calls that a connection may have unanswered; it is not read while it has.
    pub(super) unanswered: usize,
    /// Bytes that may wait for a peer; it is not read while more do.
    pub(super) unsent: usize,
    /// A connection from which nothing has come for this long ends, and one that takes longer for one frame.
    pub(super) silence: Nanos,
    /// A connection that takes nothing for this long ends.
    pub(super) stuck: Nanos,
    /// A stop waits this long for answers to go out.
    pub(super) drain: Nanos,
    /// Whether several sockets may be read and written in one system call.
    pub(super) io_uring: IoUring,
    /// What a request may spend on queues if it does not say.
    pub(super) budget: Budget,
    /// The objective, for counting what was in time.
    pub(super) slo: Nanos,
}

pub(super) struct CoreNetwork<H> {
    index: usize,
    poll: Poll,
    /// The first core's poll, which this one's is part of while its core is parked.
    first: Option<Registry>,
    events: Events,
    acceptor: Acceptor,
    shared: Arc<Shared<Job>>,
    common: Arc<Common>,
    handler: H,
    admission: Box<dyn Admission>,
    limits: Limits,
    connections: Vec<Option<Connection>>,
    tenants: Vec<u32>,
    free: Vec<u32>,
    /// How many of the connections are ending.
    ending: usize,
    /// Connections with bytes to send.
    dirty: Vec<u32>,
    dirty_since: Time,
    /// Connections that may hold unread bytes, besides what the poll will say. Each once, or a client that always has more
    /// to say would be read more and more often.
    unread: Vec<ConnectionId>,
    receiver: Receiver,
    /// What a message may have waited for where the kernel does not say: since the last look at the network.
    unseen: Nanos,
    /// The last statistics that were told, and when they were put together.
    told: Option<(Time, String)>,
    /// When the network was last looked at.
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

impl<H: Execute> CoreNetwork<H> {
    #[allow(clippy::too_many_arguments)] // the parts of a core, each made elsewhere
    pub(super) fn new(
        index: usize,
        poll: Poll,
        first: Option<Registry>,
        listener: Option<TcpListener>,
        shared: Arc<Shared<Job>>,
        common: Arc<Common>,
        handler: H,
        admission: Box<dyn Admission>,
        limits: Limits,
    ) -> io::Result<Self> {
        let acceptor = Acceptor::new(listener, poll.registry(), LISTENER)?;
        Ok(CoreNetwork {
            index,
            poll,
            first,
            events: Events::with_capacity(BATCH),
            acceptor,
            shared,
            common,
            handler,
            admission,
            limits,
            connections: Vec::new(),
            tenants: Vec::new(),
            free: Vec::new(),
            ending: 0,
            dirty: Vec::new(),
            dirty_since: Time::ZERO,
            unread: Vec::new(),
            receiver: Receiver::new(limits.io_uring),
            unseen: Nanos::ZERO,
            told: None,
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
    fn accept(&mut self, now: Time) {
        for (core, stream) in self.acceptor.accept(self.common.mail.cores(), self.common.mail.may_adopt()) {
            if core == self.index {
                self.adopt(stream, now);
            } else {
                self.common.mail.send_adopt(core, Message::Adopt(stream));
            }
        }
    }

    fn adopt(&mut self, mut stream: TcpStream, now: Time) {
        // A small answer must not wait for the acknowledgement of the one before it.
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
        let tenant = self.tenants[slot as usize];
        self.connections[slot as usize] = Some(Connection::new(stream, tenant, self.limits.payload, now));
        add(&self.common.counters[self.index].connections, 1);
        if full {
            self.end_with(slot, now, ErrorCode::ConnectionLimit, "this server has as many connections as it takes");
        } else if self.stopping_since.is_some() {
            self.end_with(slot, now, ErrorCode::ShuttingDown, "this server is stopping");
        }
    }

    fn flush(&mut self, slot: u32, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let began = self.shared.clock.now();
        let writes = usize::from(connection.unsent() > 0);
        let failed = connection.flush(now).is_err();
        self.count_writes(writes, began);
        self.flushed(slot, failed, now);
    }

    fn count_writes(&self, count: usize, began: Time) {
        let counters = &self.common.counters[self.index];
        add(&counters.writes, count as u64);
        add(&counters.writing_ns, self.shared.clock.now().since(began).0);
    }

    /// A connection's socket has taken what it takes, or failed.
    fn flushed(&mut self, slot: u32, failed: bool, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        if failed {
            self.close(slot, now);
        } else if connection.may_end() {
            self.part(slot, now);
        } else if connection.readable && self.may_read(slot) {
            // It had not been read for want of room; now there is some.
            self.read_later(slot);
        }
    }

    fn flush_all(&mut self, now: Time) {
        self.flush_together(now);
        while let Some(slot) = self.dirty.pop() {
            if let Some(connection) = &mut self.connections[slot as usize]
                && connection.dirty
            {
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

    // ---- frames ----

    /// What is wrong with a frame that is well-formed goes back as the code and words of an error.
    fn handle_frame(
        &mut self,
        slot: u32,
        frame: &Frame<'_>,
        now: Time,
        waited: Nanos,
    ) -> Result<(), (ErrorCode, String)> {
        let Some(connection) = &mut self.connections[slot as usize] else { return Ok(()) };
        match (connection.state, frame) {
            (State::Ending, _) => Ok(()),
            (State::Fresh, Frame::Register(register)) => {
                self.register(slot, register, now);
                Ok(())
            }
            (State::Open, Frame::Call(call)) => match connection.enforcement.call() {
                Ruling::Lawful => self.call(slot, call, now, waited),
                Ruling::Refused => {
                    self.refuse(slot, call, now, waited);
                    Ok(())
                }
                Ruling::Expelled => Err((ErrorCode::Unexpected, "calls without credit, again and again".into())),
            },
            (State::Open, Frame::Demand(demand)) => {
                add(&self.common.counters[self.index].demands, 1);
                if let Some(session) = &mut connection.session {
                    session.demand = demand.demand;
                    if let Some(feedback) = self.admission.demand(session, now) {
                        connection.enforcement.told(feedback.window);
                        self.say(slot, &Frame::Credit(Credit { feedback }), now);
                    }
                }
                Ok(())
            }
            (State::Open, Frame::Deregister) => {
                connection.state = State::Leaving;
                if let Some(mut session) = connection.session.take() {
                    self.admission.close(&mut session, now);
                }
                self.mark_dirty(slot, now);
                Ok(())
            }
            (State::Open | State::Leaving, Frame::Ping(ping)) => {
                self.say(slot, &Frame::Pong(Pong { timestamp: ping.timestamp }), now);
                Ok(())
            }
            (State::Open | State::Leaving, Frame::Pong(_)) => Ok(()),
            (_, frame) => Err((ErrorCode::Unexpected, format!("a {} frame has no place here", frame.kind()))),
        }
    }

    fn register(&mut self, slot: u32, register: &Register, now: Time) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let mut session = Session::new(SessionSlot(slot), CoreId(self.index as u32));
        self.admission.open(&mut session, &Opened { now, demand: register.demand });
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        connection.session = Some(session);
        connection.state = State::Open;
        connection.peer_accepts(register.payload_max);
        let regime = if self.common.pulse.gauges().credit_pool.is_some() { Regime::Credits } else { Regime::Open };
        if regime == Regime::Credits {
            connection.enforcement = Enforcement::binding();
            connection.enforcement.told(feedback.window);
        }
        let welcome = Welcome { timestamp: register.timestamp, feedback, payload_max: self.limits.payload, regime };
        self.say(slot, &Frame::Welcome(welcome), now);
    }

    fn call(&mut self, slot: u32, call: &Call<'_>, now: Time, waited: Nanos) -> Result<(), (ErrorCode, String)> {
        let random = self.choices.draw();
        let delay = self.shared.delay(now);
        let counters = &self.common.counters[self.index];
        let Some(connection) = &mut self.connections[slot as usize] else { return Ok(()) };
        let Some(session) = &mut connection.session else { return Ok(()) };
        if connection.unanswered.iter().any(|(request, _)| *request == call.request) {
            return Err((ErrorCode::DuplicateRequest, format!("request {} is unanswered", call.request.value())));
        }
        add(&counters.received, 1);
        let arrival = Arrival::new(now)
            .with_demand(call.demand)
            .with_priority(call.priority)
            .with_delay(delay)
            .with_random(random);
        let (verdict, owed) = session.request(self.admission.as_mut(), &arrival);
        connection.unanswered.push((call.request, owed));
        let id = ConnectionId { slot, tenant: connection.tenant };
        let ticket = Ticket {
            connection: id,
            request: call.request,
            timestamp: call.timestamp,
            credit: call.credit,
            arrived: Time(now.0.saturating_sub(waited.0)),
        };
        match verdict {
            Verdict::Reject(reason) => self.drop_call(&ticket, reason.into(), "", now),
            Verdict::Admit if self.stopping_since.is_some() => {
                self.drop_call(&ticket, DropReason::ShuttingDown, "", now)
            }
            // It needs no core's queue, and those who look must not wait behind what they look at.
            Verdict::Admit if call.method == statistics::METHOD => self.tell(&ticket, now),
            Verdict::Admit => {
                let mut payload = self.spares.pop().unwrap_or_default();
                payload.extend_from_slice(call.payload);
                let may_spend = call.budget.remaining().map_or(self.limits.budget, Budget::of);
                let (home, method, budget) = (self.index, call.method, call.budget);
                let job = Job { home, ticket, call: method, budget, may_spend, payload, task: None };
                self.handler.admit(job, now);
            }
        }
        Ok(())
    }

    // ---- what is due ----

    fn wake_sessions(&mut self, now: Time) {
        for _ in 0..WAKES_PER_TICK {
            let random = self.choices.draw();
            let Some(SessionSlot(slot)) = self.admission.next_to_wake(random) else { break };
            let Some(connection) = self.connections[slot as usize].as_mut() else { continue };
            let Some(session) = &mut connection.session else { continue };
            let feedback = self.admission.wake(session, now);
            add(&self.common.counters[self.index].credits, 1);
            connection.enforcement.told(feedback.window);
            self.say(slot, &Frame::Credit(Credit { feedback }), now);
        }
    }

    fn stop_accepting(&mut self, now: Time) {
        self.stopping_since = Some(now);
        self.acceptor.stop(self.poll.registry());
    }

    fn handle_event(&mut self, token: Token, event: Ready, now: Time) {
        match token {
            // Whoever looks at this poll looks at theirs next.
            WAKER | PARKED => {}
            LISTENER => self.accept(now),
            Token(slot) => {
                let slot = slot as u32;
                let Some(connection) = self.connections.get_mut(slot as usize).and_then(Option::as_mut) else { return };
                connection.hung_up |= event.hung_up;
                if event.readable {
                    connection.readable = true;
                }
                if event.writable && connection.unsent() > 0 {
                    self.flush(slot, now);
                }
                if event.readable {
                    self.read(slot, now);
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

impl From<&Event> for Ready {
    fn from(event: &Event) -> Self {
        let hung_up = event.is_read_closed();
        Ready { readable: event.is_readable() || hung_up || event.is_error(), writable: event.is_writable(), hung_up }
    }
}

impl<H: Execute> Network for CoreNetwork<H> {
    type Job = Job;

    fn housekeeping(&mut self, now: Time) {
        let shared = &self.shared;
        let delays = || (shared.packets.delay(now), shared.queues.delay(now));
        let ticks = self.common.pulse.tick(now, || self.common.load(), delays);
        if ticks != self.ticks_seen {
            self.ticks_seen = ticks;
            self.wake_sessions(now);
        }
        if self.common.mail.cores() > 1 || H::TASKS {
            let mut messages = std::mem::take(&mut self.messages);
            self.common.mail.receive(self.index, &mut messages);
            for message in messages.drain(..) {
                match message {
                    Message::Adopt(stream) => {
                        self.common.mail.adopted();
                        self.adopt(stream, now);
                    }
                    Message::Executed(executed) => self.answer(executed, now, Flush::AtOnce),
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
            self.stop_accepting(now);
        }
    }

    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>> {
        let entered = self.shared.clock.now();
        let unread = std::mem::take(&mut self.unread);
        let is_idle = unread.is_empty() && self.dirty.is_empty() && !self.acceptor.has_more();
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
        debug_assert!(self.are_distinct(&unread), "a connection is read once per look");
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
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
        let anything = !unread.is_empty() || !events.is_empty();
        let more = !self.unread.is_empty() || events.iter().count() == BATCH;
        self.events = events;
        if anything {
            let spent = self.shared.clock.now().since(began);
            add(&self.common.counters[self.index].reading_ns, spent.0);
        }
        // What was read waits no longer. What was left has waited as long as what was read before it; what comes while
        // this core is busy with its tasks waits from the moment it looked away.
        let left = if more { self.found } else { Nanos::ZERO };
        self.shared.packets.publish(self.index, now, left, anything);
        // What had to wait for a sleeping core to wake up did not wait for want of cores.
        self.shared.packets.note_found(self.index, if wait.is_zero() { self.found } else { Nanos::ZERO });
        // A server that stops does not wait for its clients to fall silent.
        Ok((anything && self.stopping_since.is_none()).then_some(began))
    }

    fn run(&mut self, _: Time, job: Job) -> Option<ReadyTask> {
        let Job { home, ticket, call, budget, mut may_spend, payload, task } = job;
        let began = self.shared.clock.now();
        let waited = began.since(ticket.arrived);
        if let Verdict::Reject(reason) = self.admission.execute(waited) {
            let dropped = Some(reason.into());
            let executed = Executed { ticket, dropped, outcome: Ok(()), reply: Vec::new(), spare: payload };
            self.deliver(home, executed, began, Flush::Together);
            return None;
        }
        if task.is_some() {
            budget::turn_came_after(waited);
            return task;
        }
        may_spend.charge(waited);
        let mut reply = self.spares.pop().unwrap_or_default();
        let request = Request { method: call, payload: &payload, arrived: ticket.arrived, budget };
        let handler = &self.handler;
        let call = AssertUnwindSafe(|| budget::with(may_spend, || handler.call(&request, &mut reply)).0);
        let outcome = catch_unwind(call).unwrap_or_else(|_| Err(Failed::panicked()));
        let now = self.shared.clock.now();
        let executed = Executed { ticket, dropped: None, outcome, reply, spare: payload };
        let flush = if now.since(began) < QUICK { Flush::Together } else { Flush::AtOnce };
        self.deliver(home, executed, now, flush);
        if now.since(began) >= COALESCE {
            self.flush_all(now);
        }
        None
    }

    fn next_timeout(&self) -> Time {
        // Sessions without credit wait for the controller's ticks: with any session there is no long sleep.
        let has_sessions = self.free.len() < self.connections.len();
        if has_sessions { self.next_sweep.min(self.common.pulse.due()) } else { self.next_sweep }
    }

    fn is_drained(&mut self, now: Time) -> bool {
        let since = *self.stopping_since.get_or_insert(now);
        let patience_is_over = now.since(since) > self.limits.drain;
        // What was said to calls that have come just now is no reason to stay.
        self.flush_all(now);
        let owes = self.connections.iter().flatten().any(|c| !c.unanswered.is_empty() || c.unsent() > 0);
        if owes && !patience_is_over {
            return false;
        }
        for slot in 0..self.connections.len() as u32 {
            self.end_with(slot, now, ErrorCode::ShuttingDown, "this server has stopped");
            self.close(slot, now);
        }
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
