//! `threading` and `threading_params` of a controller, and `[train]`: setups of a tier, policies
//! that choose them, and the policies' training.
//!
//! Does not contain the tier (`tier`).

use super::reader::{Item, Reader, distinct};
use super::{Scenario, ScenarioError, ServiceSpec, Variant};
use leeward_core::params::{Params, RawParam};
use leeward_core::units::Rate;
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::{PolicyModel, Tier};
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{Setup, ThreadingSetup};

/// Maximum number of setups and policies per controller.
const MAX_ENTRIES: usize = 200;
/// Policy that never changes the setup.
const STATIC: &str = "static";

/// A tier of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSpec {
    /// Name, which represents the service.
    pub name: String,
    /// The tier; each variant sets its setup.
    pub tier: Tier,
    /// CPU time of a request before its calls.
    pub begin: ServiceTime,
}

/// Threading of a variant: a fixed setup, or a policy that chooses setups.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadingSpec {
    /// Text, as written.
    pub text: String,
    /// The fixed setup, if any.
    pub setup: Option<ThreadingSetup>,
    /// Name of the policy, if any.
    pub policy: Option<String>,
    /// Parameters of the policy.
    pub params: Params,
}

/// Training of threading policies: setups, loads and number of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSpec {
    /// Setups that a policy may choose from.
    pub setups: Vec<Setup>,
    /// Lowest load, requests per second; the others follow by a factor of √2, up to 1.1 times the
    /// capacity.
    pub min_load: f64,
    /// Number of requests after which the result of a setup at a load is accepted.
    pub requests: u32,
}

impl Scenario {
    /// Capacity for one of the scenario's services, which may be a tier or a graph.
    pub fn capacity_of(&self, service: &ServiceSpec) -> Rate {
        if let Some(graph) = &self.graph {
            return graph.capacity();
        }
        match self.tiers.iter().find(|tier| tier.name == service.text) {
            Some(spec) => spec.tier.capacity(spec.begin.mean()),
            None => self.capacity(self.kinds.mean(&service.service)),
        }
    }

    /// The tier of `service` under the threading of `variant`; `None` if the service is not a tier.
    /// Its curves are still missing.
    pub fn tier_for(&self, service: &ServiceSpec, variant: &Variant) -> Option<Box<Tier>> {
        let spec = self.tiers.iter().find(|tier| tier.name == service.text)?;
        let mut tier = Box::new(spec.tier.clone());
        if let Some(threading) = &variant.threading {
            tier.threading = threading.setup.unwrap_or(tier.threading);
            let model =
                |name: &String| PolicyModel { name: name.clone(), params: threading.params.clone(), curves: None };
            tier.policy = threading.policy.as_ref().map(model);
        }
        Some(tier)
    }
}

/// Variants of `base`, one per named setup or policy.
///
/// A single one keeps its label. Several are labelled by their text, after the controller's own
/// label if it has one.
pub(super) fn variants(table: &Reader<'_>, base: Vec<Variant>) -> Result<Vec<Variant>, ScenarioError> {
    let params = table.find("threading_params");
    let Some(item) = table.find("threading") else {
        return match params {
            Some(item) => Err(item.error("needs `threading`; accepted: beside it")),
            None => Ok(base),
        };
    };
    let specs =
        item.list(MAX_ENTRIES)?.iter().map(|item| spec(item, params.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let named = table.find("label").is_some();
    let with_spec = |variant: &Variant, spec: &ThreadingSpec| {
        let label = match (named, specs.len()) {
            (true, 1) => variant.label.clone(),
            (true, _) => format!("{} {}", variant.label, spec.text),
            (false, _) if variant.controller == "none" => spec.text.clone(),
            (false, _) => format!("{} {}", variant.label, spec.text),
        };
        Variant { label, threading: Some(spec.clone()), ..variant.clone() }
    };
    Ok(base.iter().flat_map(|variant| specs.iter().map(move |spec| with_spec(variant, spec))).collect())
}

fn spec(item: &Item<'_>, params: Option<&Item<'_>>) -> Result<ThreadingSpec, ScenarioError> {
    let text = item.text()?;
    let choice: PolicyChoice = text.parse().map_err(|error| item.error(format!("{error}")))?;
    let pairs: Vec<(&str, RawParam)> = match params {
        None => Vec::new(),
        Some(item) => item.open_table()?.all().map(|(name, item)| Ok((name, item.raw()?))).collect::<Result<_, _>>()?,
    };
    let read = choice.policy.params(&pairs);
    let params = read.map_err(|error| params.unwrap_or(item).error(format!("`{text}`: {error}")))?;
    let policy = (choice.policy.name != STATIC).then(|| choice.policy.name.to_string());
    Ok(ThreadingSpec { text: text.into(), setup: choice.setup, policy, params })
}

impl ThreadingSpec {
    /// Whether the policy chooses by curves.
    pub fn needs_curves(&self) -> bool {
        let policy = self.policy.as_deref().unwrap_or(STATIC);
        ![STATIC, "ipi", "rotate"].contains(&policy)
    }

    /// Whether the policy gets the demand, which only the simulator knows.
    pub(crate) fn uses_demand(&self) -> bool {
        self.policy.as_deref() == Some("oracle")
    }
}

/// Reads `[train]`: the setups to train.
pub(super) fn training(item: Option<Item<'_>>) -> Result<Option<TrainingSpec>, ScenarioError> {
    let Some(item) = item else { return Ok(None) };
    let table = item.table(&["setups", "lowest", "requests"])?;
    let setup = |item: &Item<'_>| item.text()?.parse::<Setup>().map_err(|error| item.error(error.to_string()));
    let setups = distinct(&table.require("setups", "setups such as [\"SIP1\", \"SDB1-16\"]")?, setup)?;
    let lowest = match table.find("lowest") {
        None => 20.0,
        Some(item) => item
            .number()
            .ok()
            .filter(|rate| *rate > 0.0 && *rate <= 1e9)
            .ok_or_else(|| item.unexpected("requests per second above zero"))?,
    };
    Ok(Some(TrainingSpec { setups, min_load: lowest, requests: table.count_or("requests", 100..=1_000_000, 6_000)? }))
}

/// Rejects a tier without threading, and threading without a tier.
pub(super) fn check(scenario: &Scenario, controllers: &[(Variant, Item<'_>)]) -> Result<(), ScenarioError> {
    for (variant, item) in controllers {
        match (&variant.threading, scenario.tiers.is_empty()) {
            (Some(_), true) => {
                return Err(item.error(format!("`{}` has `threading`, but there is no [tier]", variant.label)));
            }
            (None, false) => {
                return Err(item.error(format!("`{}` has no `threading`, which a [tier] needs; accepted: such as threading = [\"SIP1\", \"SDB1-16\"]", variant.label)));
            }
            (Some(spec), false) if spec.needs_curves() && scenario.training.is_none() => {
                return Err(item.error(format!("`{}` chooses by curves; expected a section [train]", variant.label)));
            }
            _ => {}
        }
    }
    Ok(())
}
