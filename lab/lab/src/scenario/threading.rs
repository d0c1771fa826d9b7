//! `threading` and `threading_params` of a controller, and `[train]`: which setups a tier runs, which policies choose them, and what these
//! are trained on. What a tier is, is in `tier`.

use super::reader::{Item, Reader, distinct};
use super::{Scenario, ScenarioError, ServiceSpec, Variant};
use leeward_core::params::{Params, RawParam};
use leeward_core::units::Rate;
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::{PolicyModel, Tier};
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{Setup, ThreadingSetup};

/// The most setups and policies that one controller names.
const MAX_ENTRIES: usize = 200;
/// The policy that never changes the setup.
const STATIC: &str = "static";

/// A tier of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSpec {
    /// Its name, which stands for the service.
    pub name: String,
    /// The tier; its setup is a variant's.
    pub tier: Tier,
    /// CPU time of a request before its calls.
    pub begin: ServiceTime,
}

/// Threading of a variant: a setup, or a policy that chooses one.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadingSpec {
    /// As written.
    pub text: String,
    /// The setup, if it never changes.
    pub setup: Option<ThreadingSetup>,
    /// Name of the policy, if it does.
    pub policy: Option<String>,
    /// Parameters of the policy.
    pub params: Params,
}

/// Training of policies of threading: which setups, from which load on, how long.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSpec {
    /// Setups that a policy may choose from.
    pub setups: Vec<Setup>,
    /// The lowest load, requests per second; the others follow by the root of two, up to 1.1 times the capacity.
    pub min_load: f64,
    /// Requests after which a setup at a load is known well enough.
    pub requests: u32,
}

impl Scenario {
    /// The same for one of the scenario's services, which may be a tier.
    pub fn capacity_of(&self, service: &ServiceSpec) -> Rate {
        if let Some(graph) = &self.graph {
            return graph.capacity();
        }
        match self.tiers.iter().find(|tier| tier.name == service.text) {
            Some(spec) => spec.tier.capacity(spec.begin.mean()),
            None => self.capacity(self.kinds.mean(&service.service)),
        }
    }

    /// The tier that `service` is, under the threading of `variant`; `None` if it is none. Its curves are still missing.
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

/// Variants of `base`, one per setup or policy that is named. Alone it keeps its label; of lists each is labelled as it is written, unless
/// the controller has a label of its own, which goes before.
pub(super) fn variants(table: &Reader<'_>, base: Vec<Variant>) -> Result<Vec<Variant>, ScenarioError> {
    let params = table.find("threading_params");
    let Some(item) = table.find("threading") else {
        return match params {
            Some(item) => Err(item.error("stands without `threading`; accepted: beside it")),
            None => Ok(base),
        };
    };
    let specs =
        item.list(MAX_ENTRIES)?.iter().map(|item| spec(item, params.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let named = table.find("label").is_some();
    let one = |variant: &Variant, spec: &ThreadingSpec| {
        let label = match (named, specs.len()) {
            (true, 1) => variant.label.clone(),
            (true, _) => format!("{} {}", variant.label, spec.text),
            (false, _) if variant.controller == "none" => spec.text.clone(),
            (false, _) => format!("{} {}", variant.label, spec.text),
        };
        Variant { label, threading: Some(spec.clone()), ..variant.clone() }
    };
    Ok(base.iter().flat_map(|variant| specs.iter().map(move |spec| one(variant, spec))).collect())
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
    /// Whether its policy chooses by curves.
    pub fn needs_curves(&self) -> bool {
        let policy = self.policy.as_deref().unwrap_or(STATIC);
        ![STATIC, "ipi", "rotate"].contains(&policy)
    }

    /// Whether its policy is told the demand, which only the simulator knows.
    pub(crate) fn uses_demand(&self) -> bool {
        self.policy.as_deref() == Some("oracle")
    }
}

/// `[train]`: the setups that curves are made of.
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

/// Refuses a scenario whose tier and threading don't fit together.
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
