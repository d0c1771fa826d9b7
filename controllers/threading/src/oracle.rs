//! A policy that knows the demand: the bound for all others. Only a simulator can supply the
//! demand.

use super::curves::{Envelope, Objective, TailPercentile};
use super::policy::{PolicySpec, PollSchedule, SwitchReason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::preferred::{FANOUT, HOLD, PreferredSetup, is_step_down, with_fanout};
use super::setup::ThreadingSetup;
use leeward_core::units::{Nanos, Rate};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "oracle",
    summary: "the setup of least predicted p99 for the demand as it is; for simulations",
    source: "",
    params: &[FANOUT, HOLD],
    build: |params, environment| {
        let curves = with_fanout("oracle", params, environment.curves.as_deref())?;
        let envelope = Envelope::new(curves, Objective::Latency(TailPercentile::P99), 1.0);
        let initial = PreferredSetup::new(envelope.best(Rate(0.0)).setup);
        let hold = params.choice(HOLD.name, "on") == "on";
        Ok(Box::new(Oracle { envelope, hold, target: environment.target, preferred: initial }))
    },
};

/// Interval between decisions: a tenth of the shortest step of demand in any scenario.
const PERIOD: Nanos = Nanos::from_millis(1);

/// Policy that knows the demand; see the module.
#[derive(Clone, Debug)]
pub struct Oracle {
    envelope: Envelope,
    hold: bool,
    target: Nanos,
    preferred: PreferredSetup,
}

impl ThreadingPolicy for Oracle {
    fn initial(&self) -> ThreadingSetup {
        self.envelope.best(Rate(0.0)).setup
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(PERIOD)
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        let demand = signals.demand?;
        let pressed = self.preferred.is_under_pressure(signals, self.target);
        let setup = self.envelope.best(demand).setup;
        self.preferred.record_rate(demand);
        let is_down = is_step_down(self.envelope.curves(), signals.current, setup);
        if self.hold && is_down && pressed {
            return None;
        }
        self.preferred.prefer(signals, setup, SwitchReason::Estimate)
    }

    fn gauges(&self) -> ThreadGauges {
        self.preferred.gauges(self.envelope.curves(), TailPercentile::P99)
    }
}
