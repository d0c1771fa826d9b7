//! From what the runs said to the whole: results without rows, and the claims held against the rows.

use crate::options::Options;
use crate::scenario::Scenario;
use crate::store::SCHEMA;
use leeward_outcome::results::Results;

/// Results without rows.
pub(crate) fn blank(scenario: &Scenario, options: &Options) -> Results {
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
