//! Switches to one model after the other, regardless of the load. A test of plants, which shows
//! that a plant loses nothing by switching.

use super::policy::{PolicySpec, PollSchedule, SwitchReason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::preferred::PreferredSetup;
use super::setup::{Fanout, Handling, Setup, ThreadingSetup, Wait};
use leeward_core::params::{ParamKind, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "rotate",
    summary: "another of the eight models every period, in turns: for trials of switching",
    source: "",
    params: &[ParamSpec {
        name: "every",
        kind: ParamKind::Duration { min: Nanos::from_micros(10), max: Nanos::from_secs(3_600) },
        default: "10ms",
        doc: "time under each model",
        tuning_values: &[],
    }],
    build: |params, _| {
        let every = params.duration("every", Nanos::from_millis(10));
        Ok(Box::new(Rotate { every, at: 0, preferred: PreferredSetup::new(model(0)) }))
    },
};

/// Threads in each pool of a model: more than one where the model allows, to test sharing too.
const POOL: u16 = 2;
/// The models of µTune (§3.1).
const MODELS: usize = 8;

/// Returns the `at`-th model, with small pools. Neighbours differ in the change that is hardest for
/// a plant: the threads that wait for the leaves.
fn model(at: usize) -> ThreadingSetup {
    let fanout = if at.is_multiple_of(2) { Fanout::Sync } else { Fanout::Async };
    let handling = if (at / 2).is_multiple_of(2) { Handling::InLine } else { Handling::Dispatched };
    let wait = if (at / 4).is_multiple_of(2) { Wait::Block } else { Wait::Poll };
    let worker = if handling == Handling::Dispatched { POOL } else { 0 };
    let (network, response) = match (handling, fanout) {
        (Handling::InLine, Fanout::Sync) => (POOL, 0),
        (_, Fanout::Sync) => (1, 0),
        (_, Fanout::Async) => (1, 1),
    };
    ThreadingSetup::Setup(Setup { fanout, handling, wait, network, worker, response })
}

/// Policy that rotates through the models; see the module.
#[derive(Clone, Debug)]
pub struct Rotate {
    every: Nanos,
    at: usize,
    preferred: PreferredSetup,
}

impl ThreadingPolicy for Rotate {
    fn initial(&self) -> ThreadingSetup {
        model(0)
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        (0..MODELS).map(model).collect()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.every)
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        self.at = (self.at + 1) % MODELS;
        self.preferred.prefer(signals, model(self.at), SwitchReason::Exploration)
    }

    fn gauges(&self) -> ThreadGauges {
        self.preferred.gauges_without_curves()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_rotation_covers_every_model() {
        let names: BTreeSet<String> = (0..MODELS).map(|at| model(at).to_string().chars().take(3).collect()).collect();
        assert_eq!(names.len(), MODELS, "{names:?}");
        for at in 0..MODELS {
            assert_eq!(model(at).to_string().parse::<ThreadingSetup>(), Ok(model(at)));
        }
    }
}
