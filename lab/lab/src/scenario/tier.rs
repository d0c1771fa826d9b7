//! `[tier]` and `[server.threads]`: a server of threads that calls leaves, and its thread costs.
//! The controllers' `threading` sets its setups.

use super::document::Value;
use super::reader::{Item, MAX_ENTRIES, Reader};
use super::threading::TierSpec;
use super::{ScenarioError, ServiceSpec};
use leeward_core::units::{Nanos, parse_number};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::{
    Gather, LeafSelection, Leaves, SecondCalls, Sharing, SlowLeaf, TailModel, ThreadCosts, Tier,
};
use leeward_sim::threads::presets;
use leeward_sim::threads::wakes::WakeTable;

const SECOND: Nanos = Nanos::from_secs(1);
/// Setup of a tier without a variant's setup.
const DEFAULT_SETUP: &str = "SDB1-50";
/// Costs for which a factor may be given, besides `all`.
pub(super) const COST_KEYS: &[&str] = &[
    "wake_call",
    "wake",
    "switch",
    "slice",
    "preempt",
    "poll_turn",
    "receive",
    "send",
    "locked",
    "push_pop",
    "line",
    "cold",
    "record",
    "decide",
];
const TIER_KEYS: &[&str] = &[
    "name",
    "begin",
    "resume",
    "leaves",
    "ask",
    "replicas",
    "writes",
    "leaf",
    "servers",
    "per_call",
    "host_call",
    "rtt",
    "copies",
    "second_calls",
    "slow",
    "drops_after",
    "gather",
    "front",
    "links",
    "cpus",
    "preset",
    "scale",
];

/// Reads the tiers of a scenario; empty if it has none. `cores` and `costs` are the server's.
pub(super) fn tiers(item: Option<Item<'_>>, cores: u32, costs: &ThreadCosts) -> Result<Vec<TierSpec>, ScenarioError> {
    let Some(item) = item else { return Ok(Vec::new()) };
    let tables = match &item.node.value {
        Value::List(_) => item.tables(MAX_ENTRIES, TIER_KEYS)?,
        _ => vec![item.table(TIER_KEYS)?],
    };
    let mut tiers: Vec<TierSpec> = Vec::new();
    for table in tables {
        let spec = tier(&table, cores, costs)?;
        if tiers.iter().any(|known| known.name == spec.name) {
            let problem = format!("`{}` is in use; accepted: a name of its own", spec.name);
            return Err(table.error("name", problem));
        }
        tiers.push(spec);
    }
    Ok(tiers)
}

/// Services that represent the tiers: each tier's name, and its CPU time before the calls.
pub(super) fn services(tiers: &[TierSpec]) -> Vec<ServiceSpec> {
    let spec = |tier: &TierSpec| ServiceSpec { text: tier.name.clone(), service: tier.begin.clone(), requests: None };
    tiers.iter().map(spec).collect()
}

fn tier(table: &Reader<'_>, cores: u32, costs: &ThreadCosts) -> Result<TierSpec, ScenarioError> {
    let name = table.find("name").map_or(Ok("tier"), |item| item.line())?;
    let time = |key| table.find(key).map(|item| service(&item)).transpose();
    let span = |key| table.duration_or(key, Nanos::ZERO..=SECOND, Nanos::ZERO);
    let word = |key, words: &[&str]| table.find(key).map_or(Ok(0), |item| item.choice(words));
    let sharing = [Sharing::Sharded, Sharing::Shared];
    let words = ["sharded", "shared"];
    let count = table.count_or("leaves", 1..=64, 1)? as u16;
    let leaves = Leaves {
        count,
        selection: ask(table, count)?,
        service: time("leaf")?
            .ok_or_else(|| table.error("leaf", "missing; expected such as \"lognormal:320us:0.1\""))?,
        servers: table.count_or("servers", 1..=1_024, 1)? as u16,
        per_call: span("per_call")?,
        host_call: span("host_call")?,
        rtt: span("rtt")?,
        tails: tails(table, count)?,
    };
    let own = table.find("preset").map(|item| preset(&item)).transpose()?;
    let costs = own.unwrap_or_else(|| costs.clone());
    let tier = Tier {
        cpus: table.count_or("cpus", 1..=128, cores)?,
        costs: match table.find("scale") {
            None => costs,
            Some(item) => scaled(&costs, &item)?,
        },
        resume: span("resume")?,
        leaves,
        gather: [Gather::Own, Gather::ForkJoin][word("gather", &["own", "fork-join"])?],
        front: sharing[word("front", &words)?],
        links: sharing[word("links", &words)?],
        threading: DEFAULT_SETUP.parse().map_err(|_| table.error("name", "no setup"))?,
        policy: None,
    };
    tier.check().map_err(|problem| table.error("leaves", problem))?;
    Ok(TierSpec { name: name.into(), tier, begin: time("begin")?.unwrap_or(ServiceTime::Constant(Nanos::ZERO)) })
}

/// Reads the late and rejected replies of leaves, and the response to them.
fn tails(table: &Reader<'_>, leaves: u16) -> Result<TailModel, ScenarioError> {
    let second = table.find("second_calls").map_or(Ok(0), |item| item.choice(&["never", "budgeted"]))?;
    Ok(TailModel {
        copies: table.count_or("copies", 1..=u32::from(leaves), 1)? as u16,
        second_calls: [SecondCalls::Never, SecondCalls::Budgeted][second],
        slow: table.find("slow").map(|item| slow(&item, leaves)).transpose()?,
        reject_after: table.find("drops_after").map(|item| item.duration(Nanos::ZERO..=SECOND)).transpose()?,
    })
}

fn slow(item: &Item<'_>, leaves: u16) -> Result<SlowLeaf, ScenarioError> {
    let table = item.table(&["leaf", "share", "by"])?;
    let leaf = table.require("leaf", "the number of a leaf, from 1")?.count(1..=u32::from(leaves))? as u16 - 1;
    let by = table.require("by", "a delay such as \"10ms\"")?.duration(Nanos::ZERO..=SECOND)?;
    Ok(SlowLeaf { leaf, share: share(&table.require("share", "a share from 0 to 1")?)?, delay: by })
}

fn ask(table: &Reader<'_>, leaves: u16) -> Result<LeafSelection, ScenarioError> {
    let hash = table.find("ask").map_or(Ok(0), |item| item.choice(&["all", "hash"]))? == 1;
    if !hash {
        return match table.find("replicas").or(table.find("writes")) {
            Some(item) => Err(item.error("needs `ask = \"hash\"`; accepted: beside it")),
            None => Ok(LeafSelection::All),
        };
    }
    let writes = match table.find("writes") {
        None => 0.0,
        Some(item) => share(&item)?,
    };
    Ok(LeafSelection::Hash { replicas: table.count_or("replicas", 1..=u32::from(leaves), 1)? as u16, writes })
}

fn share(item: &Item<'_>) -> Result<f64, ScenarioError> {
    let number = match &item.node.value {
        Value::Text(text) => parse_number(text).ok(),
        _ => item.number().ok(),
    };
    number.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| item.unexpected("a share from 0 to 1"))
}

/// Reads service times. A prefix `wait:` lets a real leaf wait instead of computing.
fn service(item: &Item<'_>) -> Result<ServiceTime, ScenarioError> {
    let text = item.text()?;
    ServiceTime::parse(text.strip_prefix("wait:").unwrap_or(text)).map_err(|error| item.error(error.to_string()))
}

/// Reads the costs of `[server.threads]`: a preset's, with the section's changes and factors.
pub(super) fn costs(item: Option<Item<'_>>) -> Result<ThreadCosts, ScenarioError> {
    let default = presets::preset(presets::NAMES[0]).unwrap_or_else(ThreadCosts::free);
    let Some(item) = item else { return Ok(default) };
    let keys: Vec<&str> = ["preset", "scale"].into_iter().chain(COST_KEYS.iter().copied()).collect();
    let table = item.table(&keys)?;
    let base = match table.find("preset") {
        None => default,
        Some(item) => preset(&item)?,
    };
    let span = |key, default| table.duration_or(key, Nanos::ZERO..=SECOND, default);
    let costs = ThreadCosts {
        wake_call: span("wake_call", base.wake_call)?,
        wake: table.find("wake").map_or(Ok(base.wake), |item| wake(&item))?,
        switch: span("switch", base.switch)?,
        slice: table.duration_or("slice", Nanos(1)..=SECOND, base.slice)?,
        preempt: span("preempt", base.preempt)?,
        poll: span("poll_turn", base.poll)?,
        receive: span("receive", base.receive)?,
        send: span("send", base.send)?,
        locked_permille: match table.find("locked") {
            None => base.locked_permille,
            Some(item) => (share(&item)? * 1_000.0).round() as u32,
        },
        push_pop: span("push_pop", base.push_pop)?,
        cache_line: span("line", base.cache_line)?,
        cold_cache: span("cold", base.cold_cache)?,
        record: span("record", base.record)?,
        decide: span("decide", base.decide)?,
    };
    match table.find("scale") {
        None => Ok(costs),
        Some(item) => scaled(&costs, &item),
    }
}

fn preset(item: &Item<'_>) -> Result<ThreadCosts, ScenarioError> {
    let name = presets::NAMES[item.choice(&presets::NAMES)?];
    Ok(presets::preset(name).unwrap_or_else(ThreadCosts::free))
}

/// Reads three rows of quantiles, by the CPU's idle time.
pub(super) fn wake(item: &Item<'_>) -> Result<WakeTable, ScenarioError> {
    let expected = || {
        item.unexpected(
            "three lists (idle for less than 50us, less than 1ms, longer) of six ascending durations (p1, p50, p90, p99, p99.9, longest)",
        )
    };
    let mut rows = [[Nanos::ZERO; WakeTable::QUANTILES.len()]; 3];
    let lists = item.list(3)?;
    if lists.len() != rows.len() {
        return Err(expected());
    }
    for (row, list) in rows.iter_mut().zip(&lists) {
        let spans = list.list(row.len())?;
        if spans.len() != row.len() {
            return Err(expected());
        }
        for (cell, span) in row.iter_mut().zip(&spans) {
            *cell = span.duration(Nanos::ZERO..=SECOND)?;
        }
    }
    WakeTable::new(rows).ok_or_else(expected)
}

/// Multiplies costs by the factors of a table: by name, or `all`. `all` excludes slices and shares,
/// which don't depend on the machine's speed.
fn scaled(costs: &ThreadCosts, item: &Item<'_>) -> Result<ThreadCosts, ScenarioError> {
    let keys: Vec<&str> = ["all"].into_iter().chain(COST_KEYS.iter().copied()).collect();
    let table = item.table(&keys)?;
    let factor = |key: &str| -> Result<f64, ScenarioError> {
        let own = match table.find(key) {
            None => 1.0,
            Some(item) => item
                .number()
                .ok()
                .filter(|factor| (0.0..=100.0).contains(factor))
                .ok_or_else(|| item.unexpected("a factor from 0 to 100"))?,
        };
        Ok(own)
    };
    let all = factor("all")?;
    let span = |key, span: Nanos| Ok::<_, ScenarioError>(span.scale(all * factor(key)?).min(SECOND));
    Ok(ThreadCosts {
        wake_call: span("wake_call", costs.wake_call)?,
        wake: costs.wake.scaled(all * factor("wake")?),
        switch: span("switch", costs.switch)?,
        slice: costs.slice.scale(factor("slice")?).max(Nanos(1)),
        preempt: costs.preempt.scale(factor("preempt")?),
        poll: span("poll_turn", costs.poll)?,
        receive: span("receive", costs.receive)?,
        send: span("send", costs.send)?,
        locked_permille: ((f64::from(costs.locked_permille) * factor("locked")?).round() as u32).min(1_000),
        push_pop: span("push_pop", costs.push_pop)?,
        cache_line: span("line", costs.cache_line)?,
        cold_cache: span("cold", costs.cold_cache)?,
        record: span("record", costs.record)?,
        decide: span("decide", costs.decide)?,
    })
}
