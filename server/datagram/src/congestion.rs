//! Limit of a client's calls in flight: halved at a loss, increased by one per round of answers.

use leeward_core::units::{Nanos, Time};

/// Congestion window of one session.
#[derive(Clone, Copy, Debug)]
pub struct CongestionWindow {
    calls: u32,
    max: u32,
    /// Answers since the last increase.
    answers: u32,
    /// Losses before this time belong to the same loss event.
    recovery_until: Time,
}

impl CongestionWindow {
    /// A window of `limit` calls, before any loss.
    pub fn new(limit: u32) -> Self {
        CongestionWindow { calls: limit, max: limit, answers: 0, recovery_until: Time::ZERO }
    }

    /// Calls that may be in flight now: at least one.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Handles an answer.
    pub fn on_answer(&mut self) {
        if self.calls < self.max {
            self.answers += 1;
            if self.answers >= self.calls {
                self.answers = 0;
                self.calls += 1;
            }
        }
    }

    /// Handles the loss of a call, of `in_flight` calls. Losses within one time-out are one event.
    pub fn on_loss(&mut self, now: Time, in_flight: u32, timeout: Nanos) {
        if now >= self.recovery_until {
            self.recovery_until = now + timeout;
            self.calls = (self.calls.min(in_flight) / 2).max(1);
            self.answers = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_halve_the_window_once_per_timeout_and_answers_regrow_it() {
        let mut window = CongestionWindow::new(64);
        window.on_loss(Time(100), 40, Nanos(50));
        assert_eq!(window.calls(), 20);
        window.on_loss(Time(149), 40, Nanos(50));
        assert_eq!(window.calls(), 20, "the same event");
        (0..20).for_each(|_| window.on_answer());
        assert_eq!(window.calls(), 21);
        for round in 0..10 {
            window.on_loss(Time(200 + 100 * round), 40, Nanos(50));
        }
        assert_eq!(window.calls(), 1);
        (0..10_000).for_each(|_| window.on_answer());
        assert_eq!(window.calls(), 64);
    }
}
