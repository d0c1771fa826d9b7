//! Maximum wait of a generator's clients. In an open loop a request expires by its controller's
//! limit. In a closed loop it waits: otherwise a client without credit would issue requests at
//! once, a million per second, and measure only itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leeward_core::client::{ClientHalf, ClientParts, ClientVerdict, Gate, Reply, Submission};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// Wraps a client half: while `waits` is set, requests wait up to `longest` for permission to be
/// sent.
pub(crate) fn with_max_wait(parts: ClientParts, longest: Nanos, waits: &Arc<AtomicBool>) -> ClientParts {
    let ClientParts { half, mut config } = parts;
    let half =
        MaxWaitHalf { half, expires_after: config.max_delay, max_wait: longest, wait_for_credit: Arc::clone(waits) };
    config.max_delay = Nanos::MAX;
    ClientParts { half: Box::new(half), config }
}

struct MaxWaitHalf {
    half: Box<dyn ClientHalf>,
    expires_after: Nanos,
    max_wait: Nanos,
    wait_for_credit: Arc<AtomicBool>,
}

impl ClientHalf for MaxWaitHalf {
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        self.half.submit(event)
    }

    fn gate(&mut self, now: Time, outstanding: u32) -> Gate {
        self.half.gate(now, outstanding)
    }

    fn max_wait(&self) -> Nanos {
        if self.wait_for_credit.load(Ordering::Relaxed) {
            self.max_wait
        } else {
            self.expires_after.min(self.half.max_wait())
        }
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
    use leeward_core::client::{Client, ClientConfig, ClientSink, Header, LocalOutcome};
    use leeward_core::units::Priority;

    /// Client half that sends nothing.
    struct ClosedHalf;

    impl ClientHalf for ClosedHalf {
        fn gate(&mut self, _: Time, _: u32) -> Gate {
            Gate::Closed
        }
    }

    #[derive(Default)]
    struct EndCounter(u32);

    impl ClientSink<u32> for EndCounter {
        fn send(&mut self, _: u32, _: Header) {}
        fn end(&mut self, _: u32, _: LocalOutcome) {
            self.0 += 1;
        }
        fn send_demand(&mut self, _: u32) {}
    }

    #[test]
    fn requests_of_a_closed_loop_do_not_expire() {
        let waits = Arc::new(AtomicBool::new(true));
        let config = ClientConfig { max_delay: Nanos(100), ..ClientConfig::default() };
        let mut client =
            Client::new(with_max_wait(ClientParts { half: Box::new(ClosedHalf), config }, Nanos::MAX, &waits));
        let mut ends = EndCounter::default();
        client.submit(Time(0), 1, Priority::HIGHEST, 0, &mut ends);
        client.on_timer(Time(1_000_000), &mut ends);
        assert_eq!((ends.0, client.next_timeout(Time(0))), (0, None));
        waits.store(false, Ordering::Relaxed);
        assert_eq!(client.next_timeout(Time(0)), Some(Time(100)));
        client.on_timer(Time(1_000_000), &mut ends);
        assert_eq!(ends.0, 1);
    }
}
