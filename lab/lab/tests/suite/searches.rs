//! Scenarios of the search service: read like others, and rejected by the simulator.

use leeward_lab::run::{Options, RunError, run};
use leeward_lab::{Scenario, tune};
use leeward_sim::config::LockPolicy;
use std::sync::atomic::AtomicBool;

#[test]
fn the_search_scenario_declares_its_queries_and_lock_policies() {
    let scenario = Scenario::builtin("lk-search", &[], false).unwrap();
    let queries = scenario.workload.services[0].requests.as_ref().unwrap().to_string();
    assert_eq!(queries, "search:words=1-4,common=1,match=any,results=10");
    let refused: Vec<&str> = scenario
        .controllers
        .iter()
        .filter(|variant| variant.derived_budget)
        .map(|variant| variant.label.as_str())
        .collect();
    assert_eq!(refused, ["efficiency", "auto"]);
    assert!(scenario.controllers.iter().all(|variant| variant.locks.acquire == LockPolicy::Plain));
}

#[test]
fn measured_services_are_not_simulated() {
    let quiet = |_| {};
    let cancel = AtomicBool::new(false);
    let registry = leeward_controllers::builtin();
    let scenario = Scenario::builtin("lk-search", &[], true).unwrap();
    let error = run(&scenario, &registry, &Options::default(), &quiet, &cancel).unwrap_err();
    assert!(matches!(&error, RunError::SimUnsupported(what) if what == "search:words=1-4"), "{error}");
    // The simulator does not support a tier on the runtime's cores, either.
    let cores = Scenario::builtin("mt-nine", &[], true).unwrap();
    let refused = run(&cores, &leeward_controllers::builtin(), &Options::default(), &|_| {}, &AtomicBool::new(false))
        .unwrap_err();
    assert!(matches!(&refused, RunError::SimUnsupported(what) if what == "CORE1"), "{refused}");
    assert!(error.is_input() && error.to_string().contains("--plant real"));
    let error = tune::tune(&scenario, &registry, ("seda", 2), &Options::default(), &quiet, &cancel).unwrap_err();
    assert!(matches!(error, RunError::SimUnsupported(_)), "{error}");
}

#[test]
fn invalid_queries_are_rejected_with_the_accepted_form() {
    for wrong in ["search:words=0", "searching", "search:common=2"] {
        let overrides = [format!("workload.service={wrong}")];
        let error = Scenario::builtin("lk-search", &overrides, false).unwrap_err().to_string();
        assert!(error.contains("search:words=1-4"), "{error}");
    }
}
