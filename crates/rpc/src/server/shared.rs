//! What the cores of a server share besides their run queues.

use super::connection::ConnectionId;
use super::handler::Failed;
use super::mail::Mail;
use super::pulse::{Load, Pulse};
use crate::wire::{CreditId, DropReason, RequestId, Timestamp};
use leeward_control::budget::Budget;
use leeward_control::server::ControlLoop;
use leeward_control::units::Time;
use leeward_runtime::tasks::{ReadyTask, current_core};
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// An admitted request on its way to a handler.
pub(super) struct Job {
    /// The core that owns the connection.
    pub(super) home: usize,
    pub(super) ticket: Ticket,
    pub(super) call: crate::wire::Method,
    pub(super) budget: crate::wire::Budget,
    /// What it may spend on queues in here, those that it has come through already included.
    pub(super) may_spend: Budget,
    pub(super) payload: Vec<u8>,
    /// What executes it, if that is a task: it has the payload then.
    pub(super) task: Option<ReadyTask>,
}

/// What an answer needs to find its way back.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) connection: ConnectionId,
    pub(super) request: RequestId,
    pub(super) timestamp: Timestamp,
    pub(super) credit: CreditId,
    pub(super) arrived: Time,
}

/// How a job ended, with the result and the argument's buffer, which is used again.
pub(super) struct Executed {
    pub(super) ticket: Ticket,
    /// Why it was not executed after all.
    pub(super) dropped: Option<DropReason>,
    pub(super) outcome: Result<(), Failed>,
    pub(super) reply: Vec<u8>,
    pub(super) spare: Vec<u8>,
}

/// From one core to another.
pub(super) enum Message {
    /// Look after this connection.
    Adopt(TcpStream),
    /// A job of yours that I have stolen is done, or a task of yours, here or there.
    Executed(Executed),
}

/// Requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Received.
    pub received: u64,
    /// Answered with a result or a failure.
    pub completed: u64,
    /// Rejected.
    pub dropped: u64,
    /// Those of the rejected that their clients sent without credit. The controller never hears of them.
    pub without_credit: u64,
    /// Those of the rejected that were refused a lock.
    pub refused_lock: u64,
    /// Neither, because their connection ended first.
    pub abandoned: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Explicit credit messages that were sent.
    pub credits: u64,
    /// Explicit demand messages that were received.
    pub demands: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Time spent in them, ns.
    pub writing_ns: u64,
    /// Time spent looking at sockets, reading, decoding and deciding, ns, where there was anything to read.
    pub reading_ns: u64,
}

impl Counts {
    /// What has happened since `earlier`; connections are those of now.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Counts {
            received: less(self.received, earlier.received),
            completed: less(self.completed, earlier.completed),
            dropped: less(self.dropped, earlier.dropped),
            without_credit: less(self.without_credit, earlier.without_credit),
            refused_lock: less(self.refused_lock, earlier.refused_lock),
            abandoned: less(self.abandoned, earlier.abandoned),
            connections: self.connections,
            credits: less(self.credits, earlier.credits),
            demands: less(self.demands, earlier.demands),
            writes: less(self.writes, earlier.writes),
            writing_ns: less(self.writing_ns, earlier.writing_ns),
            reading_ns: less(self.reading_ns, earlier.reading_ns),
        }
    }
}

/// One core's counters; only that core writes them.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) without_credit: AtomicU64,
    pub(super) refused_lock: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) credits: AtomicU64,
    pub(super) demands: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) writing_ns: AtomicU64,
    pub(super) reading_ns: AtomicU64,
    /// Completed within the objective.
    pub(super) in_time: AtomicU64,
    /// Dropped, by the reason's place among all.
    pub(super) dropped_for: [AtomicU64; DropReason::ALL.len()],
}

impl Counters {
    pub(super) fn drop_for(&self, reason: DropReason) {
        add(&self.dropped, 1);
        if reason == DropReason::Lock {
            add(&self.refused_lock, 1);
        }
        if let Some(place) = DropReason::ALL.iter().position(|one| *one == reason) {
            add(&self.dropped_for[place], 1);
        }
    }
}

/// Adds to a counter that only this thread writes.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The controller's slow half, what is counted, and what goes between cores.
pub(super) struct Common {
    /// Each core looks for sessions to wake after a new tick.
    pub(super) pulse: Pulse,
    pub(super) counters: Vec<Counters>,
    pub(super) mail: Mail<Message>,
}

impl Common {
    pub(super) fn new(half: Box<dyn ControlLoop>, wakers: Vec<mio::Waker>) -> Self {
        let counters = wakers.iter().map(|_| Counters::default()).collect();
        Common { pulse: Pulse::new(half), counters, mail: Mail::new(wakers) }
    }

    /// What the controller is to see.
    pub(super) fn load(&self) -> Load {
        let counts = self.counts();
        // What was refused for want of credit is no load that the controller could do anything about.
        let refused = counts.without_credit;
        Load {
            arrivals: counts.received.saturating_sub(refused),
            completions: counts.completed,
            drops: counts.dropped.saturating_sub(refused),
            lock_drops: counts.refused_lock,
        }
    }

    /// Requests rejected so far.
    pub(super) fn dropped(&self) -> u64 {
        self.counters.iter().map(|core| core.dropped.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for core in &self.counters {
            sum.received += core.received.load(Ordering::Relaxed);
            sum.completed += core.completed.load(Ordering::Relaxed);
            sum.dropped += core.dropped.load(Ordering::Relaxed);
            sum.without_credit += core.without_credit.load(Ordering::Relaxed);
            sum.refused_lock += core.refused_lock.load(Ordering::Relaxed);
            sum.abandoned += core.abandoned.load(Ordering::Relaxed);
            sum.connections += core.connections.load(Ordering::Relaxed);
            sum.credits += core.credits.load(Ordering::Relaxed);
            sum.demands += core.demands.load(Ordering::Relaxed);
            sum.writes += core.writes.load(Ordering::Relaxed);
            sum.writing_ns += core.writing_ns.load(Ordering::Relaxed);
            sum.reading_ns += core.reading_ns.load(Ordering::Relaxed);
        }
        sum
    }

    /// Completed within the objective.
    pub(super) fn in_time(&self) -> u64 {
        self.counters.iter().map(|core| core.in_time.load(Ordering::Relaxed)).sum()
    }

    /// Drops by the names of their reasons; those that there were.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let count = |place: usize| -> u64 {
            self.counters.iter().map(|core| core.dropped_for[place].load(Ordering::Relaxed)).sum()
        };
        let named = DropReason::ALL.iter().enumerate().map(|(place, reason)| (format!("{reason:?}"), count(place)));
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// Hands a task's result to the core that answers it, from wherever the task has ended.
    pub(super) fn finish(&self, core: usize, executed: Executed) {
        // A core that runs the task itself looks at its messages next.
        self.mail.leave(core, Message::Executed(executed));
        if current_core() != Some(core) {
            self.mail.wake(core);
        }
    }
}
