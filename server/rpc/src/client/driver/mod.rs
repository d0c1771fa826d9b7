//! The client's thread: one loop that takes calls from the inbox, handles deadlines, moves bytes
//! and sleeps until there is more work.
//!
//! - `dispatch`: the connection for a call, and the effect of its end there.
//! - `link`: a connection with its reconnections. `socket_connection`: one socket connection.
//!   `connect_attempts`, `backoff`: the next attempt. `call_event`: events about a call.
//! - `table`: the calls in flight. `choice`: the choice of a connection, without I/O.
//! - `timer`, `random`: time and randomness.
//!
//! Does not contain the decision when a call may leave (the client half of the algorithm, inside
//! each connection).

mod backoff;
mod call_event;
mod choice;
pub(crate) mod connect_attempts;
mod dispatch;
mod link;
pub(crate) mod random;
mod socket;
pub(crate) mod socket_connection;
mod table;
pub(crate) mod timer;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leeward_core::client::{BoundedQueue, ClientConfig};
use leeward_core::hedging::RetryBudget;
use leeward_core::units::{Nanos, Time};
use leeward_engine::PollStatus;
use mio::{Events, Poll, Token};

use super::call_error::{CallError, Effect};
use super::counters::count;
use super::inbox::InboxMode;
use super::settings::Settings;
use super::shared::{Command, SharedState};
use call_event::CallEvent;
use link::Link;
use random::Random;
use table::{CallTable, PendingCall};
use timer::Timer;

/// Poll token of the waker, which is no connection.
pub(super) const WAKER: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);

/// Events per poll.
const EVENTS_MAX: usize = 64;

pub(super) struct Driver {
    shared: Arc<SharedState>,
    settings: Arc<Settings>,
    /// Age up to which a rejected call is retried.
    expiry: Nanos,
    poll: Poll,
    events: Events,
    timer: Timer,
    random: Random,
    links: Vec<Link>,
    /// Indices of the links that accept calls, in order. Current whenever calls are dispatched.
    up: Vec<usize>,
    /// Indices of the links to fallbacks that accept calls, in order.
    fallbacks: Vec<usize>,
    /// Replicas that are fallbacks, one bit each.
    fallback_bits: u64,
    calls: CallTable,
    /// Calls that wait for a connection: for any, and for one over TCP.
    unassigned: [BoundedQueue<u64>; 2],
    retries: RetryBudget,
    call_events: Vec<CallEvent>,
    commands: Vec<Command>,
}

impl Driver {
    pub(super) fn new(
        settings: Settings,
        config: ClientConfig,
        poll: Poll,
        shared: Arc<SharedState>,
        seed: u64,
    ) -> io::Result<Self> {
        let timer = Timer::new(poll.registry(), TIMER)?;
        let settings = Arc::new(settings);
        let fallbacks = settings.replicas.iter().enumerate().filter(|(_, replica)| replica.is_fallback);
        let fallback_bits = fallbacks.fold(0, |bits, (replica, _)| bits | dispatch::bit(replica));
        let replicas = (0..settings.replicas.len()).flat_map(|replica| [replica].repeat(settings.connections));
        let link =
            |(index, replica)| Link::new(index, replica, &settings, config.max_outstanding, shared.clock.clone());
        let links = replicas.enumerate().map(link).collect();
        Ok(Driver {
            expiry: config.max_delay,
            retries: RetryBudget::new(settings.retry_percent),
            unassigned: [BoundedQueue::new(config.queue), BoundedQueue::new(config.queue)],
            events: Events::with_capacity(EVENTS_MAX),
            random: Random::new(seed),
            up: Vec::new(),
            fallbacks: Vec::new(),
            fallback_bits,
            calls: CallTable::default(),
            call_events: Vec::new(),
            commands: Vec::new(),
            shared,
            settings,
            poll,
            timer,
            links,
        })
    }

    /// Runs until the client has ended.
    pub(super) fn run(mut self) {
        // If this thread ends, even by a panic of a waker, no caller may wait for it.
        let _gone = CloseGuard(Arc::clone(&self.shared));
        // A failed poll ends the client.
        while let Ok(PollStatus::Idle | PollStatus::Busy) = self.poll(WaitMode::UntilNeeded) {}
        self.end();
    }

    /// Runs one round.
    pub(super) fn poll(&mut self, wait_mode: WaitMode) -> io::Result<PollStatus> {
        let (mode, now) = self.take_commands();
        if self.is_over(mode) {
            return Ok(PollStatus::Done);
        }
        for link in &mut self.links {
            link.on_timer(now, self.poll.registry(), &mut self.random, &mut self.call_events);
        }
        self.refresh(now);
        self.on_deadlines(now);
        for link in &mut self.links {
            link.exchange(&mut self.random, &mut self.call_events);
        }
        let now = self.shared.clock.now();
        self.refresh(now);
        // Check again: the last call may just have ended, and then nothing would end the sleep.
        if self.is_over(mode) {
            return Ok(PollStatus::Done);
        }
        self.wait(now, wait_mode)
    }

    fn is_over(&self, mode: InboxMode) -> bool {
        match mode {
            InboxMode::Open => false,
            InboxMode::Closing => self.calls.is_empty(),
            InboxMode::Aborting | InboxMode::Closed => true,
        }
    }

    fn take_commands(&mut self) -> (InboxMode, Time) {
        let mut commands = std::mem::take(&mut self.commands);
        let mode = self.shared.inbox.take(&mut commands);
        // Read the clock after the calls: no call leaves before it was made.
        let now = self.shared.clock.now();
        for command in commands.drain(..) {
            match command {
                Command::Call { number, call } => {
                    let call = PendingCall::new(*call, self.random.draw());
                    self.calls.insert(number, call);
                    self.retries.deposit();
                    self.dispatch(number, now);
                }
                Command::Cancel(number) => self.cancel(number, now),
            }
        }
        self.commands = commands;
        self.settle(now);
        (mode, now)
    }

    /// Updates the links that accept calls, and settles their events.
    fn refresh(&mut self, now: Time) {
        self.up.clear();
        self.fallbacks.clear();
        for (index, link) in self.links.iter_mut().enumerate() {
            if link.is_ready() {
                let is_fallback = self.settings.replicas[link.replica].is_fallback;
                if is_fallback { &mut self.fallbacks } else { &mut self.up }.push(index);
            }
            if link.take_connected() {
                count(&self.shared.counters.connects);
            }
        }
        self.shared.counters.connected.store(self.up.len() + self.fallbacks.len(), Ordering::Relaxed);
        self.settle(now);
        for over_tcp in [false, true] {
            // Every call that waits there finds a connection now, and none returns to the queue.
            let waits = !self.unassigned[usize::from(over_tcp)].is_empty();
            if waits && self.choose(0, over_tcp, now).is_some() {
                while let Some((number, _)) = self.unassigned[usize::from(over_tcp)].pop(now) {
                    self.dispatch(number, now);
                }
                self.settle(now);
            }
        }
    }

    /// Ends calls whose deadline has passed.
    fn on_deadlines(&mut self, now: Time) {
        while let Some(number) = self.calls.take_overdue(now) {
            let effect = self.withdraw(number, now);
            let waited = self.age(number, now);
            self.finish(number, Err(CallError::TimedOut { effect, waited }));
        }
        for queue in 0..self.unassigned.len() {
            while self.unassigned[queue].oldest().is_some_and(|since| now.since(since) >= self.settings.connection_wait)
            {
                let Some((number, waited)) = self.unassigned[queue].pop(now) else { break };
                let reason = format!("waited {waited} for a connection; the last attempt: {}", self.last_failure());
                self.finish(number, Err(CallError::Disconnected { effect: Effect::Excluded, reason }));
            }
        }
        self.settle(now);
    }

    /// Reason for the lack of a connection, for people.
    fn last_failure(&self) -> String {
        let message =
            |link: &Link| format!("{}: {}", self.settings.replicas[link.replica].name, link.failure.message());
        self.links.iter().max_by_key(|link| link.failed_at).map_or_else(String::new, message)
    }

    /// Descriptor that becomes readable when a round has work.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Sleeps, if allowed, until a socket is ready, a caller sends a command or a deadline passes.
    fn wait(&mut self, now: Time, wait_mode: WaitMode) -> io::Result<PollStatus> {
        let busy = self.links.iter().any(Link::is_busy);
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            let oldest = self.unassigned.iter().filter_map(BoundedQueue::oldest).min();
            let waiting = oldest.map_or(Time::NEVER, |since| since + self.settings.connection_wait);
            let links = self.links.iter_mut().map(|link| link.next_timeout(now)).min().unwrap_or(Time::NEVER);
            self.timer.arm(now, links.min(waiting).min(self.calls.next_deadline()))?;
            (wait_mode == WaitMode::Never).then_some(Duration::ZERO)
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            match event.token() {
                // The next round reads the inbox in any case.
                WAKER => {}
                TIMER => self.timer.on_fired(),
                Token(index) => {
                    if let Some(link) = self.links.get_mut(index) {
                        link.on_readiness(event);
                    }
                }
            }
        }
        Ok(if busy || !self.events.is_empty() { PollStatus::Busy } else { PollStatus::Idle })
    }

    /// Ends the client: ends every call, and sends farewells to the servers.
    pub(super) fn end(&mut self) {
        self.shared.inbox.close(InboxMode::Aborting);
        self.up.clear();
        self.fallbacks.clear();
        // Before the farewells: a server that has seen one is not counted as connected.
        self.shared.counters.connected.store(0, Ordering::Relaxed);
        let (_, now) = self.take_commands();
        while let Some(number) = self.calls.any() {
            let effect = self.withdraw(number, now);
            self.finish(number, Err(CallError::ShutDown { effect }));
        }
        for link in &mut self.links {
            link.leave(now, &mut self.call_events);
        }
    }
}

/// Whether a round may end with a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitMode {
    UntilNeeded,
    Never,
}

/// Closes the inbox for good when dropped.
pub(super) struct CloseGuard(pub(super) Arc<SharedState>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.counters.connected.store(0, Ordering::Relaxed);
        self.0.inbox.close(InboxMode::Closed);
    }
}
