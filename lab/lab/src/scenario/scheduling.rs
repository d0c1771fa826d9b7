//! `[server.allocator]` and `server.balancing`: core allocation and load balancing of a server.

use super::reader::{Item, Reader};
use super::{ScenarioError, Variant};
use leeward_allocation::registry;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_sim::config::{Balancing, InitialCores, RevokePolicy, Scheduling, ServerModel, StealAmount};
use leeward_sim::scheduling::NAMES;

const SECOND: Nanos = Nanos::from_secs(1);

/// Reads the server's scheduling, if it has an allocator.
pub(super) fn scheduling(server: &Reader<'_>, cores: u32) -> Result<Option<Scheduling>, ScenarioError> {
    let balancing = server.find("balancing").map(|item| Ok((balancing(&item)?, item))).transpose()?;
    let Some(item) = server.find("allocator") else {
        return match balancing {
            Some((_, item)) => Err(item.error("needs an allocator; accepted: beside `server.allocator`")),
            None => Ok(None),
        };
    };
    let table = item.table(&["policy", "min_cores", "delay", "check", "params", "revoke", "steal", "start"])?;
    let policy = table.require("policy", "the name of an allocator such as \"delay\"")?;
    let policy = registry::find(policy.text()?).map_err(|error| policy.error(error.to_string()))?;
    let mut model = Scheduling::new(policy.name);
    if let Some(item) = table.find("params") {
        let table = item.open_table()?;
        let pairs: Vec<(&str, RawParam)> =
            table.all().map(|(name, item)| Ok((name, item.raw()?))).collect::<Result<_, _>>()?;
        model.params = policy.params(&pairs).map_err(|error| item.error(error.to_string()))?;
    }
    model.min_cores = table.count_or("min_cores", 1..=cores, model.min_cores)?;
    model.allocation_delay = table.duration_or("delay", Nanos::ZERO..=SECOND, model.allocation_delay)?;
    model.check_cost = table.duration_or("check", Nanos::ZERO..=SECOND, model.check_cost)?;
    let choice = |key, choices: &[&str]| table.find(key).map(|item| item.choice(choices)).transpose();
    model.revoke = choice("revoke", &["any", "idle"])?
        .map_or(model.revoke, |index| [RevokePolicy::Any, RevokePolicy::Idle][index]);
    model.steal =
        choice("steal", &["one", "half"])?.map_or(model.steal, |index| [StealAmount::One, StealAmount::Half][index]);
    model.start =
        choice("start", &["min", "all"])?.map_or(model.start, |index| [InitialCores::Min, InitialCores::All][index]);
    model.balancing = balancing.map_or(model.balancing, |(read, _)| read);
    Ok(Some(model))
}

fn balancing(item: &Item<'_>) -> Result<Balancing, ScenarioError> {
    Balancing::parse(item.text()?).ok_or_else(|| item.unexpected(format!("one of {NAMES}")))
}

/// Reads the allocation policies of a variant, without duplicates.
pub(super) fn allocators(item: &Item<'_>) -> Result<Vec<String>, ScenarioError> {
    let name = |item: &Item<'_>| {
        registry::find(item.text()?)
            .map_err(|error| item.error(error.to_string()))
            .map(|policy| policy.name.to_string())
    };
    item.list(100)?.iter().map(name).collect()
}

/// Reads the balancing policies of a variant.
pub(super) fn balancings(item: &Item<'_>) -> Result<Vec<String>, ScenarioError> {
    let name = |item: &Item<'_>| balancing(item).and_then(|_| item.text().map(Into::into));
    item.list(100)?.iter().map(name).collect()
}

/// Rejects a variant whose allocator can't be built, or that has balancing without an allocator.
pub(super) fn check(server: &ServerModel, variant: &Variant, item: &Item<'_>) -> Result<(), ScenarioError> {
    let Some(model) = &server.scheduling else {
        return match variant.scheduling.balancing {
            Some(_) => Err(item.error(format!("`{}` has a `balancing` without an `allocator`", variant.label))),
            None => Ok(()),
        };
    };
    let built = registry::find(&model.allocator)
        .map_err(|error| error.to_string())
        .and_then(|policy| policy.build(&model.params, model.limits(server.cores)).map_err(|error| error.to_string()));
    built.map(drop).map_err(|error| item.error(format!("`{}`: {error}", variant.label)))
}
