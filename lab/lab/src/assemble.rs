//! From what the runs said to the whole: results without rows, and the claims held against the rows.

use crate::claims::judge;
use crate::options::Options;
use crate::rows::Rows;
use crate::scenario::Scenario;
use crate::store::SCHEMA;
use leeward_outcome::results::Results;

/// Results without rows.
pub(crate) fn empty_results(scenario: &Scenario, options: &Options) -> Results {
    Results {
        schema: SCHEMA,
        scenario: scenario.id.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        description: scenario.description.trim().into(),
        plant: options.plant.clone(),
        seed: options.seed,
        quick: options.quick || scenario.quick,
        overrides: if options.overrides.is_empty() { scenario.overrides.clone() } else { options.overrides.clone() },
        plots: scenario.plots.clone(),
        ..Results::default()
    }
}

/// Adds the rows of a run, after those of the runs before it.
pub(crate) fn append_rows(results: &mut Results, rows: Rows) {
    let Rows { point, windows, shifts, locks, replicas, services, kinds, warning: doubt } = rows;
    results.points.push(point);
    results.windows.extend(windows);
    results.shifts.extend(shifts);
    results.locks.extend(locks);
    results.replicas.extend(replicas);
    results.services.extend(services);
    results.kinds.extend(kinds);
    results.doubts.extend(doubt);
}

/// Holds the scenario's claims against the rows.
pub(crate) fn with_verdicts(mut results: Results, scenario: &Scenario) -> Results {
    results.claims = scenario.claims.iter().map(|claim| judge(claim, &results)).collect();
    results
}
