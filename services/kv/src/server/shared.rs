//! What the cores of the memcached port share besides their run queues.

use crate::protocol::{After, Request};
use leeward_control::server::{ControlLoop, Gauges, Signals};
use leeward_control::units::{Nanos, Time};
use leeward_rpc::server::parts::{Inbox, Ticks};
use mio::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An admitted request on its way to the store.
pub(super) struct Job {
    /// The core that owns the connection.
    pub(super) home: usize,
    pub(super) ticket: Ticket,
    pub(super) request: Request,
}

/// What an answer needs to find its way back.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) slot: u32,
    pub(super) tenant: u32,
    pub(super) arrived: Time,
    /// Whether the controller knows of it, and may refuse it. It does not of those that are about the server.
    pub(super) counted: bool,
}

/// A job's end.
pub(super) struct Done {
    pub(super) ticket: Ticket,
    /// Its memory is used again.
    pub(super) request: Request,
    pub(super) reply: Vec<u8>,
    pub(super) end: End,
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Executed(After),
    /// The controller said no when its turn had come.
    Late,
    /// A lock was congested.
    Refused,
    /// A defect.
    Panicked,
}

/// From one core to another.
pub(super) enum Message {
    /// Look after this connection.
    Adopt(TcpStream),
    /// A job of yours that I have stolen.
    Done(Done),
}

/// Requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Received; parts of a large multi-get count each.
    pub received: u64,
    /// Executed.
    pub completed: u64,
    /// Answered `SERVER_ERROR busy` because of the controller.
    pub dropped: u64,
    /// Answered `SERVER_ERROR busy` because of a lock.
    pub refused: u64,
    /// Neither, because their connection ended first.
    pub abandoned: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Connections so far.
    pub accepted: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// One core's counters; only that core writes them.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
}

/// Adds to a counter that only this thread writes.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The controller's slow half and what goes between cores.
pub(super) struct Common {
    ticks: Ticks<Control>,
    pub(super) counters: Vec<Counters>,
    inboxes: Vec<Inbox<Message, mio::Waker>>,
    /// Connections on their way from the core that has accepted them to their own.
    adopting: AtomicUsize,
}

/// See `leeward-rpc`: these connections are in no one's limit.
const ADOPTING: usize = 256;

struct Control {
    half: Box<dyn ControlLoop>,
    before: Counts,
}

impl Common {
    pub(super) fn new(half: Box<dyn ControlLoop>, wakers: Vec<mio::Waker>) -> Self {
        Common {
            counters: wakers.iter().map(|_| Counters::default()).collect(),
            ticks: Ticks::new(half.period(), Control { half, before: Counts::default() }),
            inboxes: wakers.into_iter().map(Inbox::new).collect(),
            adopting: AtomicUsize::new(0),
        }
    }

    /// Ticks the controller if that is due and no other core is at it. Returns the number of ticks so far.
    pub(super) fn tick(&self, now: Time, delays: impl FnOnce() -> (Nanos, Nanos)) -> u64 {
        self.ticks.run(now, |control, missed| {
            let counts = self.counts();
            let (packet_delay, run_delay) = delays();
            let before = control.before;
            let less = |now: u64, then: u64| now.saturating_sub(then);
            control.half.tick(&Signals {
                now,
                packet_delay,
                run_delay,
                arrivals: less(counts.received, before.received),
                completions: less(counts.completed, before.completed),
                drops: less(counts.dropped + counts.refused, before.dropped + before.refused),
                lock_drops: less(counts.refused, before.refused),
            });
            // As in `leeward-rpc`: idle periods that nobody noticed are made up for, a delay after a pause is one finding.
            if packet_delay + run_delay == Nanos::ZERO {
                (0..missed).for_each(|_| control.half.tick(&Signals::idle(now)));
            }
            control.before = counts;
        })
    }

    pub(super) fn due(&self) -> Time {
        self.ticks.due()
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.ticks.look(|control| control.half.gauges())
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for core in &self.counters {
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            sum.received += get(&core.received);
            sum.completed += get(&core.completed);
            sum.dropped += get(&core.dropped);
            sum.refused += get(&core.refused);
            sum.abandoned += get(&core.abandoned);
            sum.connections += get(&core.connections);
            sum.accepted += get(&core.accepted);
            sum.bytes_read += get(&core.bytes_read);
            sum.bytes_written += get(&core.bytes_written);
        }
        sum
    }

    pub(super) fn may_adopt(&self) -> bool {
        self.adopting.load(Ordering::Relaxed) < ADOPTING
    }

    pub(super) fn send_adopt(&self, core: usize, stream: TcpStream) {
        self.adopting.fetch_add(1, Ordering::Relaxed);
        self.send(core, Message::Adopt(stream));
    }

    pub(super) fn adopted(&self) {
        self.adopting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn send(&self, core: usize, message: Message) {
        self.inboxes[core].send(message);
    }

    /// Takes the messages for `core` into `into`, which is empty.
    pub(super) fn receive(&self, core: usize, into: &mut Vec<Message>) {
        self.inboxes[core].receive(into);
    }

    pub(super) fn wake(&self, core: usize) {
        self.inboxes[core].wake();
    }

    pub(super) fn cores(&self) -> usize {
        self.inboxes.len()
    }
}
