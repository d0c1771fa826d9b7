//! A client that spaces what it sends: no request leaves sooner than so long after the one before it, whatever its
//! algorithm allows.

use leeward_core::client::{ClientHalf, ClientVerdict, Gate, Reply, Submission};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// A half that keeps its distance, around the algorithm's.
pub(crate) struct PacedHalf {
    half: Box<dyn ClientHalf>,
    gap: Nanos,
    /// When the next request may leave.
    next: Time,
}

impl PacedHalf {
    pub(crate) fn new(half: Box<dyn ClientHalf>, gap: Nanos) -> Self {
        PacedHalf { half, gap, next: Time::ZERO }
    }
}

impl ClientHalf for PacedHalf {
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        self.half.submit(event)
    }

    fn gate(&mut self, now: Time, outstanding: u32) -> Gate {
        match self.half.gate(now, outstanding) {
            Gate::Closed => Gate::Closed,
            Gate::Open if now >= self.next => Gate::Open,
            Gate::Open => Gate::OpensAt(self.next),
            Gate::OpensAt(at) => Gate::OpensAt(at.max(self.next)),
        }
    }

    fn max_wait(&self) -> Nanos {
        self.half.max_wait()
    }

    fn on_sent(&mut self, now: Time) {
        self.next = now + self.gap;
        self.half.on_sent(now);
    }

    fn reply(&mut self, event: &Reply) {
        self.half.reply(event);
    }

    fn credit(&mut self, now: Time, feedback: &Feedback) {
        self.half.credit(now, feedback);
    }

    fn announces_demand(&self) -> bool {
        self.half.announces_demand()
    }
}
