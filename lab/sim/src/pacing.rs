//! A client half that spaces requests: it keeps a minimum time between two sends, even if the
//! algorithm allows more.

use leeward_core::client::{ClientHalf, ClientVerdict, Gate, Reply, Submission};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// A wrapper that adds the minimum gap to the algorithm's client half.
pub(crate) struct PacedHalf {
    half: Box<dyn ClientHalf>,
    gap: Nanos,
    /// Earliest time of the next send.
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
