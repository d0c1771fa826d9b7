//! A policy that knows the demand: the bound for all others. Only a simulator can tell it.

use super::curves::{Envelope, Objective, Tail};
use super::policy::{Pace, PolicySpec, Reason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::setup::Threading;
use super::wish::{FANOUT, HOLD, Wish, is_step_down, of_fanout};
use leeward_core::units::{Nanos, Rate};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "oracle",
    summary: "the setup of least predicted p99 for the demand as it is; for simulations",
    source: "",
    params: &[FANOUT, HOLD],
    build: |params, environment| {
        let curves = of_fanout("oracle", params, environment.curves.as_deref())?;
        let envelope = Envelope::new(curves, Objective::Latency(Tail::P99), 1.0);
        let wish = Wish::new(envelope.best(Rate(0.0)).setup);
        let hold = params.choice(HOLD.name, "on") == "on";
        Ok(Box::new(Oracle { envelope, hold, target: environment.target, wish }))
    },
};

/// How often it looks: ten times in the shortest step of demand that a scenario has.
const PERIOD: Nanos = Nanos::from_millis(1);

/// See the module.
#[derive(Clone, Debug)]
pub struct Oracle {
    envelope: Envelope,
    hold: bool,
    target: Nanos,
    wish: Wish,
}

impl ThreadingPolicy for Oracle {
    fn initial(&self) -> Threading {
        self.envelope.best(Rate(0.0)).setup
    }

    fn choices(&self) -> Vec<Threading> {
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn pace(&self) -> Pace {
        Pace::Periodic(PERIOD)
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<Threading> {
        if !self.wish.advances(signals.now) {
            return None;
        }
        let demand = signals.demand?;
        let pressed = self.wish.is_pressed(signals, self.target);
        let setup = self.envelope.best(demand).setup;
        self.wish.note(demand);
        let down = is_step_down(self.envelope.curves(), signals.current, setup);
        if self.hold && down && pressed {
            return None;
        }
        self.wish.want(signals, setup, Reason::Estimate)
    }

    fn gauges(&self) -> ThreadGauges {
        self.wish.gauges(self.envelope.curves(), Tail::P99)
    }
}
