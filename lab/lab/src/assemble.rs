//! Assembly of results: the results without rows, the rows of each run, and the verdicts on the
//! claims.

use crate::claims::judge;
use crate::options::Options;
use crate::rows::Rows;
use crate::scenario::Scenario;
use crate::store::SCHEMA;
use leeward_outcome::results::Results;

/// Creates results without rows.
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

/// Adds the rows of a run to those of earlier runs.
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

/// Judges the scenario's claims by the rows.
pub(crate) fn with_verdicts(mut results: Results, scenario: &Scenario) -> Results {
    results.claims = scenario.claims.iter().map(|claim| judge(claim, &results)).collect();
    results
}
