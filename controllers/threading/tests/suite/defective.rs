//! Policies with one defect each, which the checker must detect.

use leeward_core::units::{Rate, Time};
use leeward_threading::{PollSchedule, ThreadGauges, ThreadSignals, ThreadingPolicy, ThreadingSetup};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Defect {
    /// Chooses a setup without curves.
    UnknownSetup,
    /// Returns the current setup.
    Repeats,
    /// Divides by the time between equal time stamps.
    Infinite,
    /// Has time-outs in the past.
    PastTimeout,
    /// Does not check that the clock advances.
    Restarts,
    /// Steps down while requests wait.
    StepsDown,
    /// Never checks for a silence.
    IgnoresSilence,
}

/// The paper's policy with a defect.
pub(super) struct DefectivePolicy {
    pub(super) inner: Box<dyn ThreadingPolicy>,
    pub(super) defect: Defect,
    pub(super) polls: u64,
}

impl ThreadingPolicy for DefectivePolicy {
    fn initial(&self) -> ThreadingSetup {
        self.inner.initial()
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        self.inner.choices()
    }

    fn poll_schedule(&self) -> PollSchedule {
        self.inner.poll_schedule()
    }

    fn window(&self) -> usize {
        self.inner.window()
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        self.polls += 1;
        let lowest = self.inner.initial();
        match self.defect {
            Defect::UnknownSetup if self.polls.is_multiple_of(50) => Some(ThreadingSetup::Cores(2)),
            Defect::Repeats if self.polls.is_multiple_of(50) => Some(signals.current),
            Defect::Restarts | Defect::StepsDown if self.polls.is_multiple_of(3) => {
                let choices = self.choices();
                let highest = choices[choices.len() - 1];
                Some(if signals.current == lowest { highest } else { lowest })
            }
            _ => self.inner.decide(signals),
        }
    }

    fn next_timeout(&self) -> Time {
        match self.defect {
            Defect::PastTimeout => Time::ZERO,
            Defect::IgnoresSilence => Time::NEVER,
            _ => self.inner.next_timeout(),
        }
    }

    fn gauges(&self) -> ThreadGauges {
        let mut gauges = self.inner.gauges();
        if self.defect == Defect::Infinite && self.polls > 10 {
            gauges.rate = Some(Rate(f64::INFINITY));
        }
        gauges
    }
}
