//! The paper's policy: the rate of the last few arrivals, and the setup of least predicted tail
//! latency for it (µTune §4.2, §5).

use super::curves::{Envelope, Objective, TailPercentile};
use super::policy::{PolicySpec, PollSchedule, SwitchReason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::preferred::{FANOUT, HOLD, PreferredSetup, is_step_down, with_fanout};
use super::setup::ThreadingSetup;
use super::window::WINDOW_MAX;
use leeward_core::params::{ParamKind, ParamSpec};
use leeward_core::units::{Nanos, Rate, Time};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "utune",
    summary: "the setup of least predicted p99 for the rate of the last five arrivals",
    source: "µTune, OSDI'18 §4.2",
    params: &[
        ParamSpec {
            name: "window",
            kind: ParamKind::Count { min: 2, max: WINDOW_MAX as u64 },
            default: "5",
            doc: "arrivals whose rate is taken",
            tuning_values: &["5", "12", "50"],
        },
        FANOUT,
        HOLD,
    ],
    build: |params, environment| {
        let curves = with_fanout("utune", params, environment.curves.as_deref())?;
        let envelope = Envelope::new(curves, Objective::Latency(TailPercentile::P99), 1.0);
        let initial = PreferredSetup::new(envelope.best(Rate(0.0)).setup);
        let hold = params.choice(HOLD.name, "on") == "on";
        let window = params.count("window", 5) as usize;
        Ok(Box::new(Utune {
            envelope,
            window,
            hold,
            target: environment.target,
            preferred: initial,
            timeout: Time::NEVER,
        }))
    },
};

/// Shortest silence that is checked: below it a plant's timer costs more than it gains.
const SILENCE: Nanos = Nanos::from_millis(1);

/// The paper's policy; see the module.
#[derive(Clone, Debug)]
pub struct Utune {
    envelope: Envelope,
    window: usize,
    hold: bool,
    target: Nanos,
    preferred: PreferredSetup,
    timeout: Time,
}

impl ThreadingPolicy for Utune {
    fn initial(&self) -> ThreadingSetup {
        self.envelope.best(Rate(0.0)).setup
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Arrivals(self.window as u16)
    }

    fn window(&self) -> usize {
        self.window
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        let pressed = self.preferred.is_under_pressure(signals, self.target);
        // Each check of a silence waits for twice as long as the last, until there is no lower
        // setup.
        let silence = signals.arrivals.newest().map_or(SILENCE, |newest| signals.now.since(newest).max(SILENCE));
        let is_lowest = signals.current == self.initial();
        self.timeout = if is_lowest { Time::NEVER } else { signals.now + silence * 2 };
        let rate = signals.arrivals.rate(self.window, signals.now)?;
        let setup = self.envelope.best(rate).setup;
        self.preferred.record_rate(rate);
        if setup == signals.current {
            return None;
        }
        let is_down = is_step_down(self.envelope.curves(), signals.current, setup);
        if self.hold && is_down && pressed {
            return None;
        }
        // A silence may follow, so it is checked again.
        self.timeout = signals.now + silence * 2;
        self.preferred.prefer(signals, setup, SwitchReason::Estimate)
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn gauges(&self) -> ThreadGauges {
        self.preferred.gauges(self.envelope.curves(), TailPercentile::P99)
    }
}
