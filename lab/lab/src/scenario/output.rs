//! `[[plot]]` and `[[claim]]`: the report's plots, and the paper's claims.

use super::reader::{Item, Reader};
use super::{ClaimSpec, ScenarioError, Variant};
use crate::claims::{Expression, read_number};
use leeward_core::params::RawParam;
use leeward_outcome::results::Plot;
use leeward_outcome::table::{Table, ValueType};

const MAX_SECTIONS: usize = 200;

pub(super) fn plots(item: Option<Item<'_>>, variants: &[Variant]) -> Result<Vec<Plot>, ScenarioError> {
    let keys = &["title", "table", "x", "y", "series", "only", "x_scale", "y_scale", "kind"];
    let plots = |item: Item<'_>| item.tables(MAX_SECTIONS, keys)?.iter().map(|read| plot(read, variants)).collect();
    item.map_or(Ok(Vec::new()), plots)
}

fn plot(read: &Reader<'_>, variants: &[Variant]) -> Result<Plot, ScenarioError> {
    let word = |key: &str, words: &[&str]| -> Result<String, ScenarioError> {
        let index = read.find(key).map_or(Ok(0), |item| item.choice(words))?;
        Ok(words[index].into())
    };
    let table_name = word("table", &["points", "windows", "locks", "replicas", "services", "kinds"])?;
    let table = Table::find(&table_name).unwrap_or(Table::Points);
    let x = read.require("x", "a numeric field, or \"label\" for bars")?;
    let x = if x.text()? == "label" { "label".into() } else { field(&x, table, Some(ValueType::Number))? };
    let series = read.find("series").map_or(Ok("label".into()), |item| field(&item, table, None))?;
    Ok(Plot {
        title: read.require("title", "a heading")?.line()?.into(),
        x,
        y: field(&read.require("y", "a numeric field")?, table, Some(ValueType::Number))?,
        series,
        only: match read.find("only") {
            None => Vec::new(),
            Some(item) => {
                item.list(MAX_SECTIONS)?.iter().map(|item| filter(item, table, variants)).collect::<Result<_, _>>()?
            }
        },
        x_scale: word("x_scale", &["linear", "log"])?,
        y_scale: word("y_scale", &["linear", "log"])?,
        kind: word("kind", &["line", "bars", "scatter"])?,
        table: table_name,
    })
}

/// Reads a field of `table` with this type of value, or with any.
fn field(item: &Item<'_>, table: Table, kind: Option<ValueType>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let fits = |found: ValueType| kind.is_none_or(|expected| expected == found);
    match table.value_type(text) {
        Some(found) if fits(found) => Ok(text.into()),
        _ => Err(item.unexpected(format!("a field of {}; accepted: {}", table.name(), table.names(kind)))),
    }
}

/// Reads a filter `field=value`. Writes its number out, so that the report needs no parser for
/// `850k`.
fn filter(item: &Item<'_>, table: Table, variants: &[Variant]) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let parts = text.split_once('=').map(|(field, value)| (field.trim(), value.trim()));
    let found = parts.and_then(|(field, value)| Some((field, value, table.value_type(field)?)));
    let expected = || format!("a filter `field=value` with a field of {}: {}", table.name(), table.names(None));
    let (field, value, kind) = found.ok_or_else(|| item.unexpected(expected()))?;
    if kind == ValueType::Number {
        let number = read_number(value.strip_suffix('x').unwrap_or(value));
        let number = number.ok_or_else(|| item.unexpected("a filter such as `demand_ratio=2` or `demand_rps=850k`"))?;
        return Ok(format!("{field}={number}"));
    }
    check_known(item, field, value, variants)?;
    Ok(text.into())
}

/// Rejects a `label` or `controller` that the scenario does not have. Other texts, such as
/// services, are not checked, because an override may have removed them.
fn check_known(item: &Item<'_>, field: &str, value: &str, variants: &[Variant]) -> Result<(), ScenarioError> {
    let known: Vec<&str> = match field {
        "label" => variants.iter().map(|variant| variant.label.as_str()).collect(),
        "controller" => variants.iter().map(|variant| variant.controller.as_str()).collect(),
        _ => return Ok(()),
    };
    if known.contains(&value) {
        return Ok(());
    }
    let value: String = value.chars().take(60).collect();
    let what = if field == "label" {
        format!("no controller is labelled `{value}`")
    } else {
        format!("no controller `{value}` runs")
    };
    Err(item.error(format!("{what}; accepted: {}", known.join(", "))))
}

pub(super) fn claims(item: Option<Item<'_>>, variants: &[Variant]) -> Result<Vec<ClaimSpec>, ScenarioError> {
    let keys = &["id", "text", "paper", "measure", "unit", "number", "neutral", "ours", "min", "max", "note"];
    let Some(item) = item else { return Ok(Vec::new()) };
    let mut claims: Vec<ClaimSpec> = Vec::new();
    for read in item.tables(MAX_SECTIONS, keys)? {
        let id = read.require("id", "a short name")?;
        if claims.iter().any(|known| Ok(known.id.as_str()) == id.text().map_err(drop)) {
            return Err(id.error(format!("{} is in use; accepted: an id of its own", id.node.value.describe())));
        }
        claims.push(claim(&read, variants)?);
    }
    Ok(claims)
}

fn claim(read: &Reader<'_>, variants: &[Variant]) -> Result<ClaimSpec, ScenarioError> {
    let measure = read.require("measure", "an expression such as `goodput_rps{breakwater, demand_ratio=2}`")?;
    let expression = Expression::parse(measure.text()?).map_err(|error| measure.error(error.to_string()))?;
    for label in expression.labels() {
        check_known(&measure, "label", &label, variants)?;
    }
    for controller in expression.texts("controller") {
        check_known(&measure, "controller", &controller, variants)?;
    }
    let unit = read.prose_or_empty("unit")?;
    let (min, max) = bounds(read, &unit)?;
    match (min, max) {
        (None, None) => return Err(read.error("min", "missing; expected `number`, or `min`, `max` or both")),
        (Some(min), Some(max)) if min > max => {
            return Err(read.error("min", format!("{min} is above max = {max}; accepted: up to that")));
        }
        _ => {}
    }
    Ok(ClaimSpec {
        id: read.require("id", "a short name")?.line()?.into(),
        text: read.require("text", "the claim in words")?.prose()?.into(),
        paper: read.require("paper", "what the paper measured")?.prose()?.into(),
        measure: expression,
        unit,
        number: read.find("number").map(|item| item.number()).transpose()?,
        ours: read.find("ours").map_or(Ok(false), |item| boolean(&item))?,
        min,
        max,
        note: read.prose_or_empty("note")?,
    })
}

fn boolean(item: &Item<'_>) -> Result<bool, ScenarioError> {
    match item.raw()? {
        RawParam::Switch(on) => Ok(on),
        _ => Err(item.unexpected("true or false")),
    }
}

/// Tolerance around the paper's number, as a share of the paper's effect.
const TOLERANCE: f64 = 0.5;

/// Reads the accepted bounds: as written, or half of the effect above and below the paper's number.
/// The effect is the distance between the number and the value without effect (1 for a ratio, 0
/// otherwise). One rule for all numbers, so that no tolerance is as wide as the effect.
fn bounds(read: &Reader<'_>, unit: &str) -> Result<(Option<f64>, Option<f64>), ScenarioError> {
    let number = |key| read.find(key).map(|item| item.number()).transpose();
    let bounds = (number("min")?, number("max")?);
    let Some(paper) = number("number")? else {
        return match read.find("neutral") {
            Some(item) => Err(item.error("without `number` there is no tolerance; accepted: both")),
            None => Ok(bounds),
        };
    };
    if bounds != (None, None) {
        return Err(read.error("number", "the tolerance follows from it; accepted: `number`, or `min` and `max`"));
    }
    let neutral = number("neutral")?.unwrap_or(if unit == "x" { 1.0 } else { 0.0 });
    if paper == neutral {
        return Err(read.error("number", "is the value without effect; accepted: `min` or `max` for such a claim"));
    }
    let tolerance = TOLERANCE * (paper - neutral).abs();
    Ok((Some(paper - tolerance), Some(paper + tolerance)))
}
