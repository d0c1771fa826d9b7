//! Calls that a client may have under way: halved when one is lost, regrown by one per round of answers.

use leeward_core::units::{Nanos, Time};

/// The bound of one session.
#[derive(Clone, Copy, Debug)]
pub struct CongestionWindow {
    calls: u32,
    max: u32,
    /// Answers since it grew last.
    answers: u32,
    /// Losses up to then are one event.
    recovery_until: Time,
}

impl CongestionWindow {
    /// A bound that has seen no loss.
    pub fn new(most: u32) -> Self {
        CongestionWindow { calls: most, max: most, answers: 0, recovery_until: Time::ZERO }
    }

    /// Calls that may be under way now: at least one.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// A call was answered.
    pub fn on_answer(&mut self) {
        if self.calls < self.max {
            self.answers += 1;
            if self.answers >= self.calls {
                self.answers = 0;
                self.calls += 1;
            }
        }
    }

    /// A call was lost, of so many under way. Losses within one time-out are one event.
    pub fn on_loss(&mut self, now: Time, under_way: u32, timeout: Nanos) {
        if now >= self.recovery_until {
            self.recovery_until = now + timeout;
            self.calls = (self.calls.min(under_way) / 2).max(1);
            self.answers = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_halve_it_once_per_time_out_and_answers_regrow_it() {
        let mut bound = CongestionWindow::new(64);
        bound.on_loss(Time(100), 40, Nanos(50));
        assert_eq!(bound.calls(), 20);
        bound.on_loss(Time(149), 40, Nanos(50));
        assert_eq!(bound.calls(), 20, "the same event");
        (0..20).for_each(|_| bound.on_answer());
        assert_eq!(bound.calls(), 21);
        for round in 0..10 {
            bound.on_loss(Time(200 + 100 * round), 40, Nanos(50));
        }
        assert_eq!(bound.calls(), 1);
        (0..10_000).for_each(|_| bound.on_answer());
        assert_eq!(bound.calls(), 64);
    }
}
