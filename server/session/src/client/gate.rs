//! Gate of the protocol and of the send buffer, in front of an algorithm's own gate: a limit of
//! unanswered calls. The limit can only close the gate, never open it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leeward_core::client::{ClientHalf, ClientVerdict, Gate, Reply, Submission};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// Limit of unanswered calls, as the connection sets it.
///
/// The client shell owns the limited half, and the connection owns the shell, so both share one
/// number. One thread at a time uses both; the number is atomic only because halves must be `Send`.
#[derive(Debug)]
pub(super) struct InFlightLimit(Arc<AtomicU32>);

impl InFlightLimit {
    /// A limit of one: the call on trust (docs/protocol.md, "Before `Welcome` the window is 1").
    pub(super) fn new() -> Self {
        InFlightLimit(Arc::new(AtomicU32::new(1)))
    }

    pub(super) fn set(&self, calls: u32) {
        self.0.store(calls, Ordering::Relaxed);
    }

    /// Wraps `half` so that it cannot exceed this limit.
    pub(super) fn wrap(&self, half: Box<dyn ClientHalf>) -> Box<dyn ClientHalf> {
        Box::new(LimitedHalf { half, cap: Arc::clone(&self.0) })
    }
}

struct LimitedHalf {
    half: Box<dyn ClientHalf>,
    cap: Arc<AtomicU32>,
}

impl ClientHalf for LimitedHalf {
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        self.half.submit(event)
    }

    fn gate(&mut self, now: Time, outstanding: u32) -> Gate {
        if outstanding >= self.cap.load(Ordering::Relaxed) {
            return Gate::Closed;
        }
        self.half.gate(now, outstanding)
    }

    fn max_wait(&self) -> Nanos {
        self.half.max_wait()
    }

    fn on_sent(&mut self, now: Time) {
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Open;

    impl ClientHalf for Open {
        fn gate(&mut self, _: Time, _: u32) -> Gate {
            Gate::Open
        }
    }

    #[test]
    fn the_in_flight_limit_closes_an_open_gate() {
        let cap = InFlightLimit::new();
        let mut half = cap.wrap(Box::new(Open));
        assert_eq!(half.gate(Time(0), 0), Gate::Open);
        assert_eq!(half.gate(Time(0), 1), Gate::Closed);
        cap.set(2);
        assert_eq!(half.gate(Time(0), 1), Gate::Open);
        cap.set(0);
        assert_eq!(half.gate(Time(0), 0), Gate::Closed);
    }
}
