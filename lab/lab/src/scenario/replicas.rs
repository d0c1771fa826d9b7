//! `[replicas]`: several identical servers that serve together, and the choice of server for a
//! request.

use super::reader::Item;
use super::{Scenario, ScenarioError, Variant};
use leeward_core::units::Nanos;
use leeward_sim::config::{Arrivals, FirstServer, Replicas};

const MAX_WAIT: Nanos = Nanos::from_secs(3600);
/// Maximum number of sessions of all servers together.
const MAX_SESSIONS: u64 = 1_000_000;

pub(super) fn replicas(item: &Item<'_>) -> Result<Replicas, ScenarioError> {
    let table = item.table(&["servers", "first", "give_up"])?;
    let first = table.find("first").map(|item| item.choice(&["primary", "in-turn"])).transpose()?;
    Ok(Replicas {
        servers: table.require("servers", "a number of servers such as 2")?.count(2..=16)?,
        first: if first == Some(1) { FirstServer::InTurn } else { FirstServer::Primary },
        credit_timeout: table.find("give_up").map(|item| item.duration(Nanos(1)..=MAX_WAIT)).transpose()?,
    })
}

/// Rejects combinations with several servers that are not simulated.
pub(super) fn check(
    scenario: &Scenario,
    replicas: Option<Item<'_>>,
    controllers: &[(Variant, Item<'_>)],
) -> Result<(), ScenarioError> {
    let (Some(item), Some(model)) = (replicas, scenario.replicas) else { return Ok(()) };
    if let Some((variant, own)) =
        controllers.iter().find(|(variant, _)| scenario.server_for(variant).scheduling.is_some())
    {
        let problem =
            format!("`{}` has an allocator: replicas and allocated cores are not simulated together", variant.label);
        return Err(own.error(problem));
    }
    let client = &scenario.workload.client;
    for (given, key) in [(client.pacing > Nanos::ZERO, "pacing"), (client.timeout.is_some(), "timeout")] {
        if given {
            return Err(
                item.error(format!("replicas and workload.{key} are not simulated together; accepted: one of them"))
            );
        }
    }
    if scenario.workload.arrivals.contains(&Arrivals::Closed) {
        return Err(
            item.error("replicas and workload.arrivals = \"closed\" are not simulated together; accepted: one of them")
        );
    }
    let clients = u64::from(scenario.workload.clients.iter().copied().max().unwrap_or(0));
    let sessions = clients * u64::from(model.servers);
    if sessions > MAX_SESSIONS {
        let problem = format!(
            "{clients} clients with a session at each of {} servers are {sessions}; accepted: up to {MAX_SESSIONS}",
            model.servers
        );
        return Err(item.error(problem));
    }
    Ok(())
}
