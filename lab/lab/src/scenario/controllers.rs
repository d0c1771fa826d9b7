//! `[[controller]]`: algorithms with their parameters, and the grids of `vary`.

use super::application::lock_model;
use super::document::Value;
use super::reader::{Item, Reader};
use super::{ScenarioError, TunedParams, Variant, VariantScheduling, graph, scheduling, threading};
use leeward_catalogue::Catalogue;
use leeward_controllers::published;
use leeward_core::params::RawParam;
use leeward_core::registry::{Algorithm, Registry};

/// Maximum number of variants per scenario.
const MAX_VARIANTS: usize = 1_000;

/// Name and value of a parameter.
type Pair = (String, RawParam);

/// Reads all `[[controller]]` sections. Each variant comes with its reader, for later errors.
pub(super) fn controllers<'a>(item: &Item<'a>, registry: &Registry) -> Result<Vec<(Variant, Item<'a>)>, ScenarioError> {
    let mut variants: Vec<(Variant, Item<'a>)> = Vec::new();
    let keys = [
        "name",
        "label",
        "params",
        "vary",
        "tuned",
        "allocator",
        "balancing",
        "lock",
        "acquire",
        "enforce",
        "threading",
        "threading_params",
        "begin",
        "deadlines",
        "retries",
        "control",
        "downstream",
    ];
    for table in item.tables(MAX_VARIANTS, &keys)? {
        let name = table.require("name", "the name of a controller")?;
        let algorithm = registry.find(name.text()?).map_err(|error| name.error(error.to_string()))?;
        for variant in expand(&table, algorithm)? {
            let label = table.find("label").unwrap_or(table.require("name", "")?);
            if variants.iter().any(|(known, _)| known.label == variant.label) {
                return Err(
                    label.error(format!("the label `{}` is in use; accepted: a label of its own", variant.label))
                );
            }
            if variants.len() == MAX_VARIANTS {
                return Err(label.error(format!("too many variants; accepted: up to {MAX_VARIANTS}")));
            }
            variants.push((variant, table.require("name", "")?));
        }
    }
    Ok(variants)
}

fn expand(table: &Reader<'_>, algorithm: &Algorithm) -> Result<Vec<Variant>, ScenarioError> {
    let label = match table.find("label") {
        None => algorithm.name.to_string(),
        Some(item) => label(&item)?,
    };
    let (locks, derived_budget) = lock_model(table)?;
    let mut base = Variant {
        controller: algorithm.name.into(),
        label: label.clone(),
        base_label: label,
        locks,
        derived_budget,
        enforced_percent: table.find("enforce").map_or(Ok(100), |item| enforced(&item))?,
        params: Vec::new(),
        tuned: Vec::new(),
        pinned: Vec::new(),
        scheduling: VariantScheduling::default(),
        threading: None,
        call_policy: graph::call_policy(table)?,
    };
    let vary = table.find("vary").map_or(Ok(Vec::new()), |item| vary(&item, algorithm))?;
    if let Some(item) = table.find("params") {
        for (name, item) in item.open_table()?.all() {
            let pair = (name.to_string(), param(&item, name, algorithm)?);
            if vary.iter().any(|(varied, _)| varied == name) {
                return Err(item.error("is in `vary` too; accepted: one of the two"));
            }
            if item.is_override() { base.pinned.push(pair) } else { base.params.push(pair) }
        }
    }
    let is_published = |(name, value): &Pair| name == published::SWITCH && matches!(value, RawParam::Switch(true));
    if base.params.iter().chain(&base.pinned).any(is_published) {
        base.locks.acquire = base.locks.acquire.as_published();
    }
    if let Some(item) = table.find("tuned") {
        base.tuned = tuned(&item, algorithm)?;
    }
    let mut variants = threading::variants(table, expand_scheduling(table, base)?)?;
    for (name, values) in vary {
        variants =
            variants.iter().flat_map(|variant| values.iter().map(|value| with_param(variant, &name, value))).collect();
        if variants.len() > MAX_VARIANTS {
            return Err(table.error("vary", format!("spans too many variants; accepted: up to {MAX_VARIANTS}")));
        }
    }
    Ok(variants)
}

/// Reads the percentage of clients with enforced rejections.
fn enforced(item: &Item<'_>) -> Result<u8, ScenarioError> {
    let whole = |text: &str| text.strip_suffix('%')?.parse::<u8>().ok().filter(|percent| *percent <= 100);
    item.text()
        .ok()
        .and_then(whole)
        .ok_or_else(|| item.unexpected("whole percent from \"0%\", which is shadow mode, to \"100%\""))
}

/// Variants of `base`, one per combination of the named allocators and balancing policies. With
/// several, the label names the policy.
fn expand_scheduling(table: &Reader<'_>, base: Variant) -> Result<Vec<Variant>, ScenarioError> {
    let allocators = table.find("allocator").map_or(Ok(Vec::new()), |item| scheduling::allocators(&item))?;
    let balancings = table.find("balancing").map_or(Ok(Vec::new()), |item| scheduling::balancings(&item))?;
    let or_none = |names: &[String]| -> Vec<Option<String>> {
        if names.is_empty() { vec![None] } else { names.iter().cloned().map(Some).collect() }
    };
    let mut variants = Vec::new();
    for allocator in or_none(&allocators) {
        for balancing in or_none(&balancings) {
            let mut variant = base.clone();
            for (names, name) in [(&allocators, &allocator), (&balancings, &balancing)] {
                if let (Some(name), true) = (name, names.len() > 1) {
                    variant.label = format!("{} {name}", variant.label);
                }
            }
            variant.scheduling = VariantScheduling { allocator: allocator.clone(), balancing };
            variants.push(variant);
        }
    }
    Ok(variants)
}

fn with_param(variant: &Variant, name: &str, value: &RawParam) -> Variant {
    let mut variant = variant.clone();
    variant.label = format!("{} {name}={value}", variant.label);
    variant.pinned.push((name.into(), value.clone()));
    variant
}

fn label(item: &Item<'_>) -> Result<String, ScenarioError> {
    const EXPECTED: &str = "a label of 1 to 60 letters, digits, spaces and any of . _ - + : / % ( )";
    let text = item.text()?;
    let fine = |c: char| c.is_alphanumeric() || " ._-+:/%()".contains(c);
    if text.is_empty() || text.chars().count() > 60 || text.trim() != text || !text.chars().all(fine) {
        return Err(item.unexpected(EXPECTED));
    }
    Ok(text.into())
}

/// Reads the value of parameter `name`, and checks it with the algorithm's own reader.
fn param(item: &Item<'_>, name: &str, algorithm: &Algorithm) -> Result<RawParam, ScenarioError> {
    let raw = item.raw()?;
    algorithm.params(&[(name, raw.clone())]).map_err(|error| item.error(error.to_string()))?;
    Ok(raw)
}

fn vary(item: &Item<'_>, algorithm: &Algorithm) -> Result<Vec<(String, Vec<RawParam>)>, ScenarioError> {
    let grid = |(name, item): (&str, Item<'_>)| {
        let values = item.list(100)?.iter().map(|value| param(value, name, algorithm)).collect::<Result<_, _>>()?;
        Ok((name.to_string(), values))
    };
    item.open_table()?.all().map(grid).collect()
}

fn tuned(item: &Item<'_>, algorithm: &Algorithm) -> Result<Vec<TunedParams>, ScenarioError> {
    let tuned_params = |table: Reader<'_>| {
        let service = table.find("service").map(|item| service(&item)).transpose()?;
        let clients = table.find("clients").map(|item| item.count(1..=1_000_000)).transpose()?;
        let params = table.require("params", "a table such as { target = \"60us\" }")?;
        let params: Vec<Pair> = params
            .open_table()?
            .all()
            .map(|(name, item)| Ok((name.to_string(), param(&item, name, algorithm)?)))
            .collect::<Result<_, ScenarioError>>()?;
        Ok(TunedParams { service, clients, params, provenance: table.prose_or_empty("found")? })
    };
    let keys = &["service", "clients", "params", "found"];
    match &item.node.value {
        Value::List(_) => item.tables(MAX_VARIANTS, keys)?.into_iter().map(tuned_params).collect(),
        _ => Err(item.unexpected("a list of tables, written as [[controller.tuned]]")),
    }
}

fn service(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    if !text.starts_with("file:") {
        Catalogue::builtin().requests(text).map_err(|error| item.error(error.to_string()))?;
    }
    Ok(text.into())
}
