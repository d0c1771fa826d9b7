//! Scenarios, models and checks that several tests share.

pub(crate) mod checker;
pub(crate) mod graphs;
pub(crate) mod lockout;
pub(crate) mod queueing;
pub(crate) mod scenario;
pub(crate) mod tier;

use leeward_sim::{RunOutcome, SimConfig, simulate};

/// A run under a controller with its defaults, which keeps all rules.
pub(crate) fn run(config: &SimConfig, controller: &str) -> RunOutcome {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let outcome = simulate(config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
    assert!(outcome.violations.is_empty(), "{controller}: {:?}", outcome.violations);
    outcome
}
