//! `[[kind]]`: kinds of requests, which differ in tenant, class, deadline, cost and service time.

use super::document::Value;
use super::reader::{Item, Reader};
use super::{Scenario, ScenarioError, ServiceSpec, service};
use leeward_core::units::{Cost, Nanos, Tenant, parse_number};
use leeward_sim::config::{CLASSES, MAX_KINDS, RequestKind, RequestKinds};
use std::path::Path;

/// Service name of a scenario whose kinds all have their own service times, in results.
const NAME: &str = "kinds";
const MAX_DEADLINE: Nanos = Nanos::from_secs(3_600);
const MAX_COST: u32 = 1_000_000;
const KEYS: &[&str] = &["name", "share", "tenant", "class", "deadline", "cost", "service"];

/// Reads the kinds of a scenario; empty without the section.
pub(super) fn kinds(item: Option<Item<'_>>, folder: &Path) -> Result<RequestKinds, ScenarioError> {
    let Some(item) = item else { return Ok(RequestKinds::default()) };
    let tables = item.tables(MAX_KINDS, KEYS)?;
    let mut kinds = RequestKinds::default();
    for table in &tables {
        let parsed = kind(table, folder)?;
        if kinds.0.iter().any(|known| known.name == parsed.name) {
            let problem = format!("`{}` is in use; accepted: a name of its own", parsed.name);
            return Err(table.error("name", problem));
        }
        kinds.0.push(parsed);
    }
    kinds.check().map_err(|(_, problem)| item.error(problem))?;
    Ok(kinds)
}

fn kind(table: &Reader<'_>, folder: &Path) -> Result<RequestKind, ScenarioError> {
    let count = |key, range| table.find(key).map(|item| item.count(range)).transpose();
    let service = table.find("service").map(|item| service::service_time(&item, folder)).transpose()?;
    Ok(RequestKind {
        name: name(&table.require("name", "a name of its own")?)?,
        share: share(&table.require("share", "its share of the arrivals, such as \"20%\"")?)?,
        tenant: count("tenant", 0..=u32::MAX)?.map_or(Tenant::DEFAULT, Tenant),
        class: count("class", 0..=u32::from(CLASSES - 1))?.map(|class| class as u8),
        deadline: table.find("deadline").map(|item| item.duration(Nanos(1)..=MAX_DEADLINE)).transpose()?,
        cost: count("cost", 1..=MAX_COST)?.map_or(Cost::ONE, Cost),
        service,
    })
}

fn name(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 60 || !text.chars().all(fine) {
        return Err(item.unexpected("a kind's name of 1 to 60 ASCII letters, digits, - and _"));
    }
    Ok(text.into())
}

fn share(item: &Item<'_>) -> Result<f64, ScenarioError> {
    let share = match &item.node.value {
        Value::Text(text) => parse_number(text).ok(),
        _ => item.number().ok(),
    };
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| item.unexpected("a share above 0% and up to 100%, such as \"20%\""))
}

/// Service that represents kinds with their own service times; `None` if a kind uses the
/// workload's.
pub(super) fn services(kinds: &RequestKinds) -> Option<Vec<ServiceSpec>> {
    let first = kinds.0.first()?.service.clone()?;
    let each = kinds.0.iter().all(|kind| kind.service.is_some());
    each.then(|| vec![ServiceSpec { text: NAME.into(), service: first, requests: None }])
}

/// Rejects combinations with kinds that are not simulated.
pub(super) fn check(scenario: &Scenario, item: Option<Item<'_>>) -> Result<(), ScenarioError> {
    let Some(item) = item else { return Ok(()) };
    let drawn = scenario.workload.services.iter().all(ServiceSpec::is_simulated);
    let rules = [
        (scenario.tiers.is_empty(), "[tier]"),
        (scenario.graph.is_none(), "[[service]]"),
        (drawn, "a service that is measured"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, part)) => Err(item.error(format!("{part} and [[kind]] are not simulated together"))),
        None => Ok(()),
    }
}
