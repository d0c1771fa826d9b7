//! Policies that break one promise each, for the checker to catch.

use leeward_core::units::{Rate, Time};
use leeward_threading::{Pace, ThreadGauges, ThreadSignals, Threading, ThreadingPolicy};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mistake {
    /// Wants a setup that nobody has curves of.
    Stranger,
    /// Names the setup that is there.
    Repeats,
    /// Divides by the time between equal stamps.
    Infinite,
    /// Has time-outs that have passed.
    Impatient,
    /// Forgets to look whether the clock goes on.
    Restarts,
    /// Steps down whatever waits.
    Careless,
    /// Never looks at a silence.
    Deaf,
}

/// The paper's policy with a mistake.
pub(super) struct Hostile {
    pub(super) inner: Box<dyn ThreadingPolicy>,
    pub(super) mistake: Mistake,
    pub(super) asked: u64,
}

impl ThreadingPolicy for Hostile {
    fn initial(&self) -> Threading {
        self.inner.initial()
    }

    fn choices(&self) -> Vec<Threading> {
        self.inner.choices()
    }

    fn pace(&self) -> Pace {
        self.inner.pace()
    }

    fn window(&self) -> usize {
        self.inner.window()
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<Threading> {
        self.asked += 1;
        let lowest = self.inner.initial();
        match self.mistake {
            Mistake::Stranger if self.asked.is_multiple_of(50) => Some(Threading::Cores(2)),
            Mistake::Repeats if self.asked.is_multiple_of(50) => Some(signals.current),
            Mistake::Restarts | Mistake::Careless if self.asked.is_multiple_of(3) => {
                let choices = self.choices();
                let highest = choices[choices.len() - 1];
                Some(if signals.current == lowest { highest } else { lowest })
            }
            _ => self.inner.decide(signals),
        }
    }

    fn next_timeout(&self) -> Time {
        match self.mistake {
            Mistake::Impatient => Time::ZERO,
            Mistake::Deaf => Time::NEVER,
            _ => self.inner.next_timeout(),
        }
    }

    fn gauges(&self) -> ThreadGauges {
        let mut gauges = self.inner.gauges();
        if self.mistake == Mistake::Infinite && self.asked > 10 {
            gauges.rate = Some(Rate(f64::INFINITY));
        }
        gauges
    }
}
