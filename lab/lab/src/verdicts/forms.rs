//! Two forms of a scenario: with our additions, as in its file, and with the algorithms as
//! published. Does not contain runs.

use crate::scenario::{Scenario, ScenarioError};
use leeward_controllers::published;
use leeward_core::registry::Registry;
use std::path::Path;

/// Both forms of a scenario.
pub(super) struct Forms {
    /// The form of the file.
    pub(super) extended: Scenario,
    /// The form as published, on the paper's machine if the scenario names one; `None` if nothing
    /// differs.
    pub(super) published: Option<Scenario>,
}

/// Whether a controller has additions of ours.
fn has_additions(controller: &str) -> bool {
    published::additions(controller).is_some()
}

impl Forms {
    /// Reads both forms of the scenario `id` from its text.
    pub(super) fn read(
        (id, text): (&str, &str),
        overrides: &[String],
        quick: bool,
        registry: &Registry,
    ) -> Result<Forms, ScenarioError> {
        let parse = |overrides: &[String]| {
            Scenario::parse(&format!("{id}.toml"), text, Path::new(""), overrides, quick, registry)
        };
        let extended = parse(overrides)?;
        let mut labels: Vec<&str> = Vec::new();
        for variant in extended.controllers.iter().filter(|variant| has_additions(&variant.controller)) {
            if !labels.contains(&variant.base_label.as_str()) {
                labels.push(&variant.base_label);
            }
        }
        if labels.is_empty() && extended.published.is_empty() {
            return Ok(Forms { extended, published: None });
        }
        let switch = |label: &&str| format!("controller.{label}.params.{}=true", published::SWITCH);
        let machine = extended.published.iter().cloned();
        let all: Vec<String> = overrides.iter().cloned().chain(machine).chain(labels.iter().map(switch)).collect();
        let published = parse(&all)?;
        Ok(Forms { extended, published: Some(published) })
    }

    /// The published form with only the variants that differ from the file's; `None` if none
    /// differs.
    pub(super) fn differing_scenario(&self) -> Option<Scenario> {
        let mut differing = self.published.clone()?;
        // On another machine every variant differs.
        if self.extended.published.is_empty() {
            differing.controllers.retain(|variant| has_additions(&variant.controller));
        }
        Some(differing)
    }
}
