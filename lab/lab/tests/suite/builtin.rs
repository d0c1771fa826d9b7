//! Every scenario file is built in, has its id as name, and can be read, quick and in full.

use leeward_lab::{Scenario, ScenarioError, builtin_scenarios};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

#[test]
fn every_builtin_file_is_listed_and_valid() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(Into::into))
        .collect();
    files.sort();
    let mut listed: Vec<String> = builtin_scenarios().iter().map(|builtin| builtin.id.into()).collect();
    listed.sort();
    assert_eq!(files, listed);
    for id in files {
        for quick in [false, true] {
            let scenario = Scenario::builtin(&id, &[], quick).unwrap();
            let loaded = Scenario::load(&folder().join(format!("{id}.toml")), &[], quick).unwrap();
            assert_eq!(scenario, loaded);
            assert_eq!(scenario.id, id);
            assert!(!scenario.plots.is_empty() && !scenario.claims.is_empty(), "{id}");
        }
    }
}

#[test]
fn the_error_for_an_unknown_id_names_the_known_ids() {
    let error = Scenario::builtin("bw-overal", &[], false).unwrap_err();
    assert!(matches!(error, ScenarioError::UnknownId { .. }));
    assert!(error.to_string().contains("bw-overall"), "{error}");
}

/// All scenarios of the core allocation study have the same machine.
#[test]
fn all_core_allocation_scenarios_have_one_machine() {
    let load = |id| Scenario::builtin(id, &[], false).unwrap().server;
    for id in ["ca-collapse", "ca-policies"] {
        assert_eq!(load(id), load("ca-ramp"), "{id}");
    }
}

/// All scenarios of the threading study have the same machine; a variant changes no cost.
#[test]
fn all_threading_scenarios_have_one_machine() {
    let tier = |id: &str, name: &str| {
        let scenario = Scenario::builtin(id, &[], false).unwrap();
        scenario.tiers.into_iter().find(|tier| tier.name == name).unwrap_or_else(|| panic!("{id} has no {name}"))
    };
    let base = tier("mt-sync", "hdsearch");
    // Services without work, with copies of leaves, or measured ones have other tiers.
    let others = ["mt-null", "mt-hedge", "mt-switch", "mt-nine", "mt-twin"];
    for builtin in
        builtin_scenarios().iter().filter(|builtin| builtin.id.starts_with("mt-") && !others.contains(&builtin.id))
    {
        assert_eq!(tier(builtin.id, "hdsearch"), base, "{}", builtin.id);
    }
}

/// The machine is the same for every controller of every scenario that reproduces a figure: none
/// may change its costs. Scenarios for the real plant have one core and loopback's costs, until the
/// machine itself is measured.
#[test]
fn no_scenario_of_a_paper_changes_the_machine() {
    let others = ["demo", "real-", "ca-", "mt-", "tier-", "edge-", "hidden-"];
    for builtin in
        builtin_scenarios().iter().filter(|builtin| !others.iter().any(|other| builtin.id.starts_with(other)))
    {
        let scenario = Scenario::builtin(builtin.id, &[], false).unwrap();
        if scenario.workload.services.iter().any(|service| !service.is_simulated()) {
            // Never simulated.
            continue;
        }
        assert_eq!(scenario.server, leeward_sim::config::ServerModel::default(), "{}", builtin.id);
        assert_eq!(scenario.network, leeward_sim::config::NetworkModel::default(), "{}", builtin.id);
    }
}
