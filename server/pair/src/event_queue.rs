//! Agenda of a pair: a queue of events in virtual time, and the hash of all that have happened.

use leeward_core::units::Time;
use std::collections::BTreeMap;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// Something that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimEvent {
    /// Bytes, or the end of a stream, reach an end of a connection.
    Arrive(usize, Endpoint),
    /// There is room again for what an end of a connection has to say.
    Writable(usize, Endpoint),
    /// A client's timer goes off.
    Timer(usize),
    /// A server's link has something to say again.
    DatagramTimer(usize),
    /// A client that reads slowly reads.
    Read(usize),
    /// A worker is done.
    Done(usize),
    /// The controller's slow half is due.
    Tick,
    /// Silent, stuck and paused connections are looked at.
    Scan,
}

impl SimEvent {
    /// A number for the trace.
    fn code(self) -> u64 {
        let end = |end| u64::from(end == Endpoint::Server);
        match self {
            SimEvent::Arrive(link, to) => (link as u64) << 8 | end(to),
            SimEvent::Writable(link, to) => (link as u64) << 8 | 2 | end(to),
            SimEvent::Timer(link) => (link as u64) << 8 | 4,
            SimEvent::Read(link) => (link as u64) << 8 | 5,
            SimEvent::Done(worker) => (worker as u64) << 8 | 6,
            SimEvent::DatagramTimer(link) => (link as u64) << 8 | 9,
            SimEvent::Tick => 7,
            SimEvent::Scan => 8,
        }
    }
}

/// Happenings in the order of time; those of the same moment in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    queue: BTreeMap<(Time, u64), SimEvent>,
    scheduled: u64,
    trace: Trace,
}

impl EventQueue {
    pub(super) fn schedule(&mut self, at: Time, happening: SimEvent) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), happening);
    }

    /// When the next thing happens.
    pub(super) fn due(&self) -> Time {
        self.queue.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Time, SimEvent)> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.trace.note(at.0);
        self.trace.note(happening.code());
        Some((at, happening))
    }

    pub(super) fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    pub(super) fn hash(&self) -> u64 {
        self.trace.0
    }
}

/// A hash of everything that happened (FNV-1a).
#[derive(Debug)]
pub(super) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Trace(0xCBF2_9CE4_8422_2325)
    }
}

impl Trace {
    fn note(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// Bytes that an end has received.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}
