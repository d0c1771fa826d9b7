//! `--set path=value` and the `[quick]` section: changes to the tree before any validation, so that
//! an override passes the same checks as the file.

use super::ScenarioError;
use super::document::{Node, Origin, Source, Table, Value, parse_value};

/// Maximum length of an override: it holds a thousand entries, the maximum of a list.
const MAX_BYTES: usize = 100_000;

/// Relative half-width of goodput in quick runs.
const QUICK_PRECISION: f64 = 0.03;

/// Section of each key of `[quick]`.
pub(super) const QUICK: &[(&str, &str)] = &[
    ("seeds", "run"),
    ("warmup", "run"),
    ("duration", "run"),
    ("window", "run"),
    ("at_least", "run"),
    ("requests", "train"),
    ("demand", "workload"),
    ("clients", "workload"),
    ("service", "workload"),
    ("p", "workload"),
    ("r", "workload"),
];

/// Applies the `[quick]` section, or one seed per point without the section.
pub(super) fn apply_quick(root: &mut Table) {
    let quick = match root.find("quick").map(|entry| &entry.node.value) {
        Some(Value::Table(table)) => table.clone(),
        Some(_) => return, // the reader reports the error
        None => Table::default(),
    };
    if root.find("quick").is_none() {
        let one = Node { value: Value::Integer(1), origin: Origin::Line(1) };
        insert(root, "run", "seeds", one);
    }
    // The same experiment, known less precisely.
    let precision = Node { value: Value::Number(QUICK_PRECISION), origin: Origin::Line(1) };
    insert(root, "run", "precision", precision);
    for entry in &quick.entries {
        if let Some((key, section)) = QUICK.iter().find(|(key, _)| *key == entry.key) {
            insert(root, section, key, entry.node.clone());
        }
    }
}

fn insert(root: &mut Table, section: &str, key: &str, node: Node) {
    if root.find(section).is_none() {
        root.insert(section, Node { value: Value::Table(Table::default()), origin: node.origin });
    }
    if let Some(Value::Table(table)) = root.find_mut(section).map(|entry| &mut entry.node.value) {
        table.insert(key, node);
    }
}

/// Applies all overrides in order.
pub(super) fn apply(root: &mut Table, source: &Source<'_>) -> Result<(), ScenarioError> {
    for (index, given) in source.overrides.iter().enumerate() {
        let error = |key: &str, problem: &str| source.error(Origin::Override(index), key, problem);
        let Some((path, text)) = given.split_once('=') else {
            return Err(error("override", "not of the form key=value, such as `workload.clients=200`"));
        };
        let path = path.trim();
        if given.len() > MAX_BYTES {
            return Err(error(path, &format!("{} bytes; accepted: up to {MAX_BYTES}", given.len())));
        }
        set(root, path, parse_value(text, index), index).map_err(|problem| error(path, &problem))?;
    }
    Ok(())
}

/// Sets the dotted `path` to `node`. Entries of lists are addressed by their label, name or id, or
/// by number from 0.
fn set(table: &mut Table, path: &str, node: Node, index: usize) -> Result<(), String> {
    let Some((key, rest)) = path.split_once('.') else {
        if path.is_empty() {
            return Err("an empty key; accepted: a dotted path such as `run.seeds`".into());
        }
        table.insert(path, node);
        return Ok(());
    };
    if table.find(key).is_none() {
        table.insert(key, Node { value: Value::Table(Table::default()), origin: Origin::Override(index) });
    }
    match table.find_mut(key).map(|entry| &mut entry.node.value) {
        Some(Value::Table(inner)) => set(inner, rest, node, index),
        Some(Value::List(items)) => {
            let (inner, rest) = element(items, rest, key)?;
            set(inner, rest, node, index)
        }
        _ => Err(format!("`{}` is a single value and has no keys within", shorten(key))),
    }
}

/// Finds the table in a list that the first part of `path` names. Returns it with the rest of the
/// path. Labels may contain dots.
fn element<'t, 'p>(items: &'t mut [Node], path: &'p str, list: &str) -> Result<(&'t mut Table, &'p str), String> {
    let names: Vec<String> = items.iter().enumerate().map(|(at, node)| name_of(node, at)).collect();
    let found = names
        .iter()
        .map(String::clone)
        .enumerate()
        .chain((0..items.len()).map(|at| (at, at.to_string())))
        .filter_map(|(at, name)| Some((at, path.strip_prefix(name.as_str())?.strip_prefix('.')?)))
        .next();
    let accepted = || format!("no such entry of `{}`; accepted: {}", shorten(list), names.join(", "));
    let (at, rest) = found.ok_or_else(accepted)?;
    match &mut items[at].value {
        Value::Table(table) => Ok((table, rest)),
        _ => Err(format!("the entries of `{}` have no keys within", shorten(list))),
    }
}

fn name_of(node: &Node, at: usize) -> String {
    let Value::Table(table) = &node.value else { return at.to_string() };
    ["label", "name", "id"]
        .iter()
        .find_map(|key| match table.find(key).map(|entry| &entry.node.value) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        })
        .unwrap_or_else(|| at.to_string())
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}
