//! Benchmark cases from scenarios. A case is a scenario with the benchmark's controllers instead of
//! its own.
//!
//! Of the scenario's own variants only those tuned for it remain.

use crate::scenario::{Scenario, ScenarioError, Variant, VariantScheduling};
use crate::{BuiltinScenario, builtin_scenarios};
use leeward_core::registry::Registry;
use leeward_core::units::Nanos;
use leeward_sim::config::{LockModel, LockPolicy};
use leeward_sim::oracle;

/// Maximum number of points of a case, and of a quick one: some scenarios sweep demand in steps
/// that add nothing to the benchmark.
const MAX_POINTS: [usize; 2] = [6, 2];
/// Maximum measured time of a quick run; the warm-up takes half as long.
const QUICK_DURATION: Nanos = Nanos::from_millis(200);

/// A scenario in which all controllers run.
#[derive(Clone, Debug)]
pub struct BenchmarkCase {
    /// Name in tables: the scenario's id, with its lock policy if that rejects requests.
    pub name: String,
    /// The scenario with its runs.
    pub scenario: Scenario,
}

/// The built-in scenarios that can be simulated with only cores and locks, as cases.
///
/// Scenarios with several kinds of requests are excluded, because few controllers use kinds.
/// `filters` are parts of ids; without filters it returns all cases.
///
/// # Errors
/// A rejected scenario, which would be a defect of this crate.
pub fn builtin_cases(filters: &[String], quick: bool) -> Result<Vec<BenchmarkCase>, ScenarioError> {
    let mut all = Vec::new();
    for builtin in builtin_scenarios() {
        if filters.is_empty() || filters.iter().any(|part| builtin.id.contains(part.as_str())) {
            all.extend(cases_of(builtin, quick)?);
        }
    }
    Ok(all)
}

fn cases_of(builtin: &BuiltinScenario, quick: bool) -> Result<Vec<BenchmarkCase>, ScenarioError> {
    let scenario = Scenario::builtin(builtin.id, &[], quick)?;
    let is_simple = scenario.tiers.is_empty() && scenario.graph.is_none() && scenario.replicas.is_none();
    let is_simple = is_simple && scenario.kinds.is_empty();
    if !is_simple || !scenario.workload.services.iter().all(|service| service.is_simulated()) {
        return Ok(Vec::new());
    }
    let mut combinations: Vec<(LockModel, VariantScheduling)> = Vec::new();
    let takes_locks = scenario.workload.application.is_some();
    for variant in scenario.controllers.iter().filter(|variant| !variant.derived_budget) {
        let locks = if takes_locks { variant.locks } else { LockModel::default() };
        // The lock policy of an application without changes.
        let plain = LockModel { acquire: LockPolicy::Plain, ..locks };
        for locks in [plain, locks] {
            let combination = (locks, variant.scheduling.clone());
            if !combinations.contains(&combination) && is_supported(&locks) {
                combinations.push(combination);
            }
        }
    }
    Ok(combinations.into_iter().map(|(locks, scheduling)| benchmark_case(&scenario, locks, scheduling)).collect())
}

/// Whether the runtime has this lock policy. Trying once and timing out are only the papers'
/// comparisons.
fn is_supported(locks: &LockModel) -> bool {
    matches!(locks.acquire, LockPolicy::Plain | LockPolicy::UnlessCongested { recheck: true, .. })
}

fn benchmark_case(scenario: &Scenario, locks: LockModel, scheduling: VariantScheduling) -> BenchmarkCase {
    let mut name = scenario.id.clone();
    if locks.acquire != LockPolicy::Plain {
        name += ", refusing locks";
    }
    for policy in [&scheduling.allocator, &scheduling.balancing].into_iter().flatten() {
        name += &format!(", {policy}");
    }
    let here = |variant: &Variant| {
        let is_tuned = !(variant.params.is_empty() && variant.tuned.is_empty() && variant.pinned.is_empty());
        let same =
            variant.scheduling == scheduling && (scenario.workload.application.is_none() || variant.locks == locks);
        is_tuned && same && variant.controller != "auto" && !variant.derived_budget
    };
    let mut controllers = default_variants(&oracle::registry(), locks, &scheduling);
    for variant in scenario.controllers.iter().filter(|variant| here(variant)) {
        let label = format!("{} {TUNED_SUFFIX}", variant.label);
        controllers.push(Variant { base_label: label.clone(), label, ..variant.clone() });
    }
    let mut scenario = scenario.clone();
    scenario.controllers = controllers;
    scenario.run.seeds = 1;
    (scenario.claims, scenario.plots) = (Vec::new(), Vec::new());
    scenario.limit_points(MAX_POINTS[usize::from(scenario.quick)]);
    if scenario.quick && scenario.run.settle.is_none() && !scenario.workload.demand.is_shifting() {
        scenario.run.warmup = scenario.run.warmup.min(QUICK_DURATION / 2);
        scenario.run.duration = scenario.run.duration.min(scenario.run.warmup + QUICK_DURATION);
    }
    BenchmarkCase { name, scenario }
}

/// Suffix in the label of a tuned variant.
pub(super) const TUNED_SUFFIX: &str = "(tuned)";

/// All algorithms with their defaults, and the oracle, which decides before requests wait for
/// locks.
pub(super) fn default_variants(registry: &Registry, locks: LockModel, scheduling: &VariantScheduling) -> Vec<Variant> {
    let variant = |name: &'static str| Variant {
        controller: name.into(),
        label: name.into(),
        base_label: name.into(),
        locks: if name == oracle::ALGORITHM.name { LockModel { acquire: LockPolicy::Plain, ..locks } } else { locks },
        derived_budget: false,
        enforced_percent: 100,
        params: Vec::new(),
        tuned: Vec::new(),
        pinned: Vec::new(),
        scheduling: scheduling.clone(),
        threading: None,
        call_policy: None,
    };
    registry.names().map(variant).collect()
}
