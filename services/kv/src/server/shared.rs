//! What the cores of the memcached port share besides their run queues.

use crate::protocol::{After, Request};
use leeward_control::server::ControlLoop;
use leeward_control::units::Time;
use leeward_rpc::server::parts::{Load, Mail, Pulse};
use mio::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The controller's slow half, what is counted, and what goes between cores.
pub(super) struct Common {
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
        Load {
            arrivals: counts.received,
            completions: counts.completed,
            drops: counts.dropped + counts.refused,
            lock_drops: counts.refused,
        }
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
}
