//! Event queue of a pair in virtual time, and the hash of all events.

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

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimEvent {
    /// Bytes, or the end of a stream, arrive at an end of a connection.
    Arrive(usize, Endpoint),
    /// An end of a connection may write again.
    Writable(usize, Endpoint),
    /// A client's timer fires.
    Timer(usize),
    /// A server link's timer fires.
    DatagramTimer(usize),
    /// A slow reader reads.
    Read(usize),
    /// A worker completes its call.
    Done(usize),
    /// The controller's slow half ticks.
    Tick,
    /// The server scans for silent, stuck and paused connections.
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

/// Events in the order of time; simultaneous events in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    queue: BTreeMap<(Time, u64), SimEvent>,
    scheduled: u64,
    trace: Trace,
}

impl EventQueue {
    pub(super) fn schedule(&mut self, at: Time, event: SimEvent) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }

    /// Time of the next event.
    pub(super) fn due(&self) -> Time {
        self.queue.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Time, SimEvent)> {
        let ((at, _), event) = self.queue.pop_first()?;
        self.trace.note(at.0);
        self.trace.note(event.code());
        Some((at, event))
    }

    pub(super) fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    pub(super) fn hash(&self) -> u64 {
        self.trace.0
    }
}

/// A hash of all events (FNV-1a).
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

    /// Adds bytes that an end has received.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}
