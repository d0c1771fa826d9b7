//! Scenarios, models and checks for several tests.

pub(crate) mod checker;
pub(crate) mod graphs;
pub(crate) mod lockout;
pub(crate) mod queueing;
pub(crate) mod scenario;
pub(crate) mod tier;

use leeward_sim::{RunOutcome, SimConfig, simulate};

/// Runs a controller with its defaults and checks the invariants.
pub(crate) fn run(config: &SimConfig, controller: &str) -> RunOutcome {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller).unwrap();
    let outcome = simulate(config, algorithm, &algorithm.params(&[]).unwrap()).unwrap();
    assert!(outcome.violations.is_empty(), "{controller}: {:?}", outcome.violations);
    outcome
}
