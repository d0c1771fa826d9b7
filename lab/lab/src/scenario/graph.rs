//! `[[service]]` and `[[call]]`: a graph of services that replaces the server. A controller's call
//! policy for such a graph.

use super::document::Value;
use super::reader::{Item, Reader};
use super::{Scenario, ScenarioError, ServiceSpec, Variant};
use leeward_core::units::{Nanos, parse_number};
use leeward_sim::config::Costs;
use leeward_sim::graph::model::{
    CallModel, CallOrder, CallPolicy, ControlPlacement, DeadlinePolicy, DownstreamReports, Graph, GraphPart,
    ServiceModel, StartCondition,
};
use leeward_sim::service_time::ServiceTime;
use std::sync::Arc;

const SECOND: Nanos = Nanos::from_secs(1);
/// Service name of a scenario with a graph, in results.
pub(super) const NAME: &str = "graph";
const SERVICE_KEYS: &[&str] = &["name", "servers", "cores", "time", "resume", "receive", "send", "rtt"];
const CALL_KEYS: &[&str] = &["from", "to", "times", "share", "when"];

/// Default values of a service.
pub(super) struct Defaults {
    /// `server.cores`.
    pub(super) cores: u32,
    /// `server.costs`.
    pub(super) costs: Costs,
    /// `network.rtt`.
    pub(super) rtt: Nanos,
}

/// Reads the graph of a scenario, if any.
pub(super) fn graph(
    services: Option<Item<'_>>,
    calls: Option<Item<'_>>,
    defaults: &Defaults,
) -> Result<Option<Arc<Graph>>, ScenarioError> {
    let Some(item) = services else {
        return match calls {
            Some(item) => Err(item.error("needs [[service]] sections; accepted: calls among services")),
            None => Ok(None),
        };
    };
    let tables = item.tables(Graph::MAX_SERVICES, SERVICE_KEYS)?;
    let services = tables.iter().map(|table| service(table, defaults)).collect::<Result<Vec<_>, _>>()?;
    // Checked before the calls, which refer to services by name.
    if let Some(index) = (1..services.len())
        .find(|index| services[..*index].iter().any(|known: &ServiceModel| known.name == services[*index].name))
    {
        let problem = format!("two services are called `{}`; accepted: a name of its own", services[index].name);
        return Err(tables[index].error("name", problem));
    }
    let call_tables = calls.as_ref().map_or(Ok(Vec::new()), |item| item.tables(4_000, CALL_KEYS))?;
    let calls = call_tables.iter().map(|table| call(table, &services)).collect::<Result<Vec<_>, _>>()?;
    let graph = Graph { services, calls, policy: CallPolicy::default() };
    match graph.check() {
        Ok(()) => Ok(Some(Arc::new(graph))),
        Err((GraphPart::Whole, problem)) => Err(item.error(problem)),
        Err((GraphPart::Service(index), problem)) => Err(tables[index].error("name", problem)),
        Err((GraphPart::Call(index), problem)) => Err(call_tables[index].error("to", problem)),
    }
}

fn service(table: &Reader<'_>, defaults: &Defaults) -> Result<ServiceModel, ScenarioError> {
    let time = table.require("time", "CPU time of a request such as \"exp:10us\"")?;
    let span = |key, default| table.duration_or(key, Nanos::ZERO..=SECOND, default);
    Ok(ServiceModel {
        name: table.require("name", "a name of its own")?.line()?.into(),
        servers: table.count_or("servers", 1..=1_000, 1)?,
        cores: table.count_or("cores", 1..=128, defaults.cores)?,
        service: ServiceTime::parse(time.text()?).map_err(|error| time.error(error.to_string()))?,
        resume: span("resume", Nanos::ZERO)?,
        receive: span("receive", defaults.costs.receive)?,
        send: span("send", defaults.costs.send)?,
        rtt: span("rtt", defaults.rtt)?,
    })
}

fn call(table: &Reader<'_>, services: &[ServiceModel]) -> Result<CallModel, ScenarioError> {
    let service_index = |key| {
        let item = table.require(key, "the name of a [[service]]")?;
        let name = item.text()?;
        services.iter().position(|service| service.name == name).ok_or_else(|| {
            let names: Vec<&str> = services.iter().take(20).map(|service| service.name.as_str()).collect();
            item.unexpected(format!("a service; accepted: {}", names.join(", ")))
        })
    };
    Ok(CallModel {
        from: service_index("from")?,
        to: service_index("to")?,
        times: table.count_or("times", 1..=64, 1)? as u16,
        probability: table.find("share").map_or(Ok(1.0), |item| share(&item))?,
        order: match table.find("when") {
            None => CallOrder::default(),
            Some(item) => [CallOrder::Parallel, CallOrder::Sequential][item.choice(&["together", "then"])?],
        },
    })
}

fn share(item: &Item<'_>) -> Result<f64, ScenarioError> {
    let number = match &item.node.value {
        Value::Text(text) => parse_number(text).ok(),
        _ => item.number().ok(),
    };
    number.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| item.unexpected("a share from 0 to 1"))
}

/// Reads a controller's call policy; `None` without any of its keys.
pub(super) fn call_policy(table: &Reader<'_>) -> Result<Option<CallPolicy>, ScenarioError> {
    let (begin, deadlines, retries) = (table.find("begin"), table.find("deadlines"), table.find("retries"));
    let (control, downstream) = (table.find("control"), table.find("downstream"));
    let settings = [&begin, &deadlines, &retries, &control, &downstream];
    if settings.iter().all(|item| item.is_none()) {
        return Ok(None);
    }
    let word = |item: Option<Item<'_>>, words: &[&str]| item.map_or(Ok(0), |item| item.choice(words));
    let begin = [StartCondition::Admitted, StartCondition::Reserved][word(begin, &["admitted", "reserved"])?];
    Ok(Some(CallPolicy {
        start: begin,
        control: [ControlPlacement::Everywhere, ControlPlacement::Entry][word(control, &["everywhere", "entry"])?],
        // A server that reserves credits needs no more requests than it has credits for.
        downstream: match downstream {
            None if begin == StartCondition::Reserved => DownstreamReports::On,
            other => [DownstreamReports::Off, DownstreamReports::On][word(other, &["nothing", "told"])?],
        },
        deadlines: [DeadlinePolicy::Ignored, DeadlinePolicy::Enforced][word(deadlines, &["ignored", "kept"])?],
        retries: retries.map_or(Ok(0.0), |item| share(&item))?,
    }))
}

/// Service that represents the graph: the first service's work before its calls.
pub(super) fn services(graph: &Graph) -> Vec<ServiceSpec> {
    let first = graph.services.first();
    first
        .map(|first| ServiceSpec { text: NAME.into(), service: first.service.clone(), requests: None })
        .into_iter()
        .collect()
}

/// Rejects keys that graphs don't support, and keys that only graphs support.
pub(super) fn check(scenario: &Scenario, controllers: &[(Variant, Item<'_>)]) -> Result<(), ScenarioError> {
    let Some((variant, item)) = controllers.first() else { return Ok(()) };
    if scenario.graph.is_none() {
        let with_policy = controllers.iter().find(|(variant, _)| variant.call_policy.is_some());
        return match with_policy {
            Some((variant, item)) => Err(item.error(format!(
                "`{}` says how tiers pass requests on (`begin` …), but there is no [[service]] that asks another",
                variant.label
            ))),
            None => Ok(()),
        };
    }
    let rules = [
        (scenario.tiers.is_empty(), "[tier]"),
        (scenario.replicas.is_none(), "[replicas]"),
        (scenario.workload.application.is_none(), "[[workload.path]]"),
        (scenario.server.scheduling.is_none() && variant.scheduling.allocator.is_none(), "an allocator"),
        (scenario.server.stalls.is_none(), "[server.stalls]"),
        (scenario.rtts.len() == 1 && scenario.network.jitter == Nanos::ZERO, "several round trips or jitter"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, part)) => Err(item.error(format!("{part} and [[service]] are not simulated together"))),
        None => Ok(()),
    }
}

impl Scenario {
    /// The graph under `variant`; `None` if the scenario has none.
    pub fn graph_for(&self, variant: &Variant) -> Option<Arc<Graph>> {
        let graph = self.graph.as_ref()?;
        match variant.call_policy {
            None => Some(Arc::clone(graph)),
            Some(passing) => Some(Arc::new(Graph { policy: passing, ..Graph::clone(graph) })),
        }
    }
}
