//! The sections of the simulated system: `[server]`, `[network]`, `[workload]`, `[run]`.

use super::application::application;
use super::reader::{Item, MAX_ENTRIES, Reader, distinct};
use super::{
    Demand, DemandPlan, RunSettings, ScenarioError, TierSpec, Workload, disturbances, graph, kinds, scheduling,
    service, tier,
};
use leeward_core::units::{Nanos, parse_duration, parse_number, parse_ratio, parse_scaled};
use leeward_plant::Transport;
use leeward_sim::config::{
    Aqm, Arrivals, ClientModel, ControlTiming, Costs, MethodVisibility, NetworkModel, QueueOrder, RequestKinds,
    ServerModel, Shares, SocketCosts, Stalls,
};
use leeward_sim::graph::model::Graph;
use leeward_sim::threads::model::ThreadCosts;
use std::path::Path;

const SECOND: Nanos = Nanos::from_secs(1);
/// Maximum duration of a run: an hour of simulated time.
const MAX_RUN: Nanos = Nanos::from_secs(3600);

pub(super) fn server(item: Option<Item<'_>>) -> Result<ServerModel, ScenarioError> {
    let default = ServerModel::default();
    let Some(item) = item else { return Ok(default) };
    let table = item.table(&[
        "cores",
        "batch",
        "costs",
        "sockets",
        "order",
        "aqm",
        "control",
        "methods",
        "stalls",
        "wake",
        "pauses",
        "quota",
        "slow",
        "allocator",
        "balancing",
        "threads",
    ])?;
    let costs = match table.find("costs") {
        None => default.costs,
        Some(item) => costs(&item.table(&["receive", "spawn", "send", "reject", "steal"])?)?,
    };
    let cores = table.count_or("cores", 1..=128, default.cores)?;
    Ok(ServerModel {
        cores,
        batch: table.count_or("batch", 1..=65_536, default.batch)?,
        costs,
        sockets: table.find("sockets").map(|item| sockets(&item)).transpose()?,
        order: match table.find("order").map(|item| item.choice(&["tasks-first", "packets-first"])).transpose()? {
            None => default.order,
            Some(0) => QueueOrder::TasksFirst,
            Some(_) => QueueOrder::PacketsFirst,
        },
        aqm: match table.find("aqm").map(|item| item.choice(&["head", "arrival"])).transpose()? {
            None => default.aqm,
            Some(0) => Aqm::Head,
            Some(_) => Aqm::Arrival,
        },
        control: match table.find("control").map(|item| item.choice(&["ideal", "queued"])).transpose()? {
            None => default.control,
            Some(0) => ControlTiming::Ideal,
            Some(_) => ControlTiming::Queued,
        },
        methods: match table.find("methods").map(|item| item.choice(&["paths", "unknown"])).transpose()? {
            None => default.methods,
            Some(0) => MethodVisibility::Paths,
            Some(_) => MethodVisibility::Unknown,
        },
        stalls: table.find("stalls").map(|item| stalls(&item)).transpose()?,
        wake: table.find("wake").map(|item| tier::wake(&item)).transpose()?,
        pauses: table.find("pauses").map(|item| disturbances::pauses(&item)).transpose()?,
        quota: table.find("quota").map(|item| disturbances::quota(&item)).transpose()?,
        slow: table.find("slow").map(|item| disturbances::slow(&item)).transpose()?,
        scheduling: scheduling::scheduling(&table, cores)?,
    })
}

/// Reads the costs of a tier's threads from `[server.threads]`.
pub(super) fn thread_costs(server: Option<Item<'_>>) -> Result<ThreadCosts, ScenarioError> {
    let threads = server.map(|item| item.open_table()).transpose()?.and_then(|table| table.find("threads"));
    tier::costs(threads)
}

fn costs(table: &Reader<'_>) -> Result<Costs, ScenarioError> {
    let default = Costs::default();
    let cost = |key, default| table.duration_or(key, Nanos::ZERO..=SECOND, default);
    Ok(Costs {
        receive: cost("receive", default.receive)?,
        spawn: cost("spawn", default.spawn)?,
        send: cost("send", default.send)?,
        reject: cost("reject", default.reject)?,
        steal: cost("steal", default.steal)?,
    })
}

fn sockets(item: &Item<'_>) -> Result<SocketCosts, ScenarioError> {
    let table = item.table(&["receive", "send", "together"])?;
    let cost = |key| table.require(key, "a duration such as \"300ns\"")?.duration(Nanos::ZERO..=SECOND);
    Ok(SocketCosts { receive: cost("receive")?, send: cost("send")?, batched_write: cost("together")? })
}

fn stalls(item: &Item<'_>) -> Result<Stalls, ScenarioError> {
    let table = item.table(&["every", "lasts"])?;
    let span = |key, least| table.require(key, "a duration such as \"10ms\"")?.duration(least..=SECOND);
    Ok(Stalls { mean_interval: span("every", Nanos::from_micros(1))?, mean_length: span("lasts", Nanos::ZERO)? })
}

/// Names of transports in scenarios.
const TRANSPORTS: [(&str, Transport); 2] = [("tcp", Transport::Tcp), ("udp", Transport::Udp)];

/// Reads the transport of the real plant.
pub(super) fn transport(item: Option<Item<'_>>) -> Result<Transport, ScenarioError> {
    let Some(item) = item else { return Ok(Transport::Tcp) };
    let Some(item) = item.open_table()?.find("transport") else { return Ok(Transport::Tcp) };
    Ok(TRANSPORTS[item.choice(&TRANSPORTS.map(|(name, _)| name))?].1)
}

/// Reads the network, with all its round trips.
pub(super) fn network(item: Option<Item<'_>>) -> Result<(NetworkModel, Vec<Nanos>), ScenarioError> {
    let default = NetworkModel::default();
    let Some(item) = item else { return Ok((default, vec![default.rtt])) };
    let table = item.table(&["rtt", "jitter", "transport"])?;
    let rtts = match table.find("rtt") {
        None => vec![default.rtt],
        Some(item) => distinct(&item, |item| item.duration(Nanos::ZERO..=SECOND))?,
    };
    let jitter = table.duration_or("jitter", Nanos::ZERO..=SECOND, default.jitter)?;
    Ok((NetworkModel { rtt: rtts[0], jitter }, rtts))
}

/// Sections that describe requests instead of `workload.service`.
pub(super) struct RequestSections<'a> {
    pub(super) tiers: &'a [TierSpec],
    pub(super) graph: Option<&'a Graph>,
    pub(super) kinds: &'a RequestKinds,
}

/// Reads an arrival process: `poisson`, `constant`, `closed`, or `bursts:PEAK:SPAN`.
fn arrivals_of(item: &Item<'_>) -> Result<Arrivals, ScenarioError> {
    let text = item.text()?;
    let bursts = || {
        let (peak, span) = text.strip_prefix("bursts:")?.split_once(':')?;
        let (peak, lasts) = (parse_number(peak).ok()?, parse_duration(span).ok()?);
        let is_possible = (1.0..=2.0).contains(&peak) && lasts >= Nanos(1_000) && lasts <= SECOND;
        is_possible.then_some(Arrivals::Bursts { peak_permille: (peak * 1e3).round() as u16, mean_length: lasts })
    };
    match text {
        "poisson" => Ok(Arrivals::Poisson),
        "constant" => Ok(Arrivals::Constant),
        "closed" => Ok(Arrivals::Closed),
        _ => bursts().ok_or_else(|| {
            item.unexpected("poisson, constant, closed, or bursts:PEAK:SPAN such as \"bursts:1.8:5ms\", a peak of 1 to 2 times the mean and spans of 1us to 1s")
        }),
    }
}

pub(super) fn workload(
    item: &Item<'_>,
    folder: &Path,
    duration: Nanos,
    others: &RequestSections<'_>,
) -> Result<Workload, ScenarioError> {
    let table = item.table(&[
        "service", "clients", "arrivals", "shares", "demand", "shift", "slo", "pacing", "timeout", "locks", "path",
        "p", "r",
    ])?;
    let tiers = others.tiers;
    let services = match (table.find("service"), tiers.is_empty(), others.graph) {
        (Some(item), false, _) => return Err(item.error("is not allowed beside [tier], whose names are the services")),
        (Some(item), _, Some(_)) => return Err(item.error("is not allowed beside [[service]], whose `time` sets it")),
        (None, false, _) => tier::services(tiers),
        (None, true, Some(graph)) => graph::services(graph),
        (_, true, None) => match (kinds::services(others.kinds), table.find("service")) {
            (Some(_), Some(item)) => {
                return Err(item.error("is not allowed if all [[kind]] sections have a `service`"));
            }
            (Some(services), None) => services,
            (None, _) => {
                let services = table.require("service", "a service time such as \"exp:10us\", or a list")?;
                distinct(&services, |item| service::service(item, folder))?
            }
        },
    };
    let clients = table.require("clients", "a number of clients, or a list")?;
    let clients = distinct(&clients, |item| item.count(1..=1_000_000))?;
    let arrivals = table.find("arrivals").map_or(Ok(vec![Arrivals::Poisson]), |item| distinct(&item, arrivals_of))?;
    if let (Some(item), true, 2..) = (table.find("arrivals"), tiers.is_empty(), arrivals.len()) {
        return Err(item.error("a list without a [tier]; accepted: one of the two"));
    }
    let is_closed = arrivals.contains(&Arrivals::Closed);
    if let (Some(item), true, true) = (table.find("arrivals"), is_closed, !tiers.is_empty() || others.graph.is_some()) {
        return Err(item.error(
            "closed: a closed loop of clients is simulated of one server of cores, not beside a [tier] or a graph",
        ));
    }
    if let (None, true) = (table.find("slo"), !tiers.is_empty() || others.graph.is_some()) {
        return Err(table.error("slo", "missing; expected the objective of the whole, such as \"2ms\""));
    }
    Ok(Workload {
        services,
        clients,
        arrivals,
        shares: table.find("shares").map_or(Ok(Shares::Equal), |item| shares(&item))?,
        demand: demand_plan(&table, duration)?,
        client: ClientModel {
            pacing: table.duration_or("pacing", Nanos::ZERO..=MAX_RUN, Nanos::ZERO)?,
            timeout: table.find("timeout").map(|item| item.duration(Nanos(1)..=MAX_RUN)).transpose()?,
        },
        application: application(&table)?,
        slo: table.find("slo").map(|item| item.duration(Nanos(1)..=MAX_RUN)).transpose()?,
    })
}

fn shares(item: &Item<'_>) -> Result<Shares, ScenarioError> {
    const EXPECTED: &str = "\"equal\" or \"zipf:0.9\" (an exponent from 0 to 5)";
    let text = item.text()?;
    if text == "equal" {
        return Ok(Shares::Equal);
    }
    let exponent = text.strip_prefix("zipf:").and_then(|rest| parse_number(rest).ok());
    exponent.filter(|s| *s <= 5.0).map(Shares::Zipf).ok_or_else(|| item.unexpected(EXPECTED))
}

fn demand_plan(table: &Reader<'_>, duration: Nanos) -> Result<DemandPlan, ScenarioError> {
    match (table.find("demand"), table.find("shift")) {
        (Some(item), None) => {
            item.list(MAX_ENTRIES)?.iter().map(demand).collect::<Result<_, _>>().map(DemandPlan::Steady)
        }
        (None, Some(item)) => shifts(&item, duration).map(DemandPlan::Shifting),
        (Some(_), Some(item)) => Err(item.error("is not allowed beside `demand`; accepted: one of the two")),
        (None, None) => {
            Err(table.error("demand", "missing; expected demands such as [\"1x\", \"400k\"], or [[shift]]"))
        }
    }
}

fn shifts(item: &Item<'_>, duration: Nanos) -> Result<Vec<(Nanos, Demand)>, ScenarioError> {
    let mut all: Vec<(Nanos, Demand)> = Vec::new();
    for table in item.tables(MAX_ENTRIES, &["at", "demand"])? {
        let at_item = table.require("at", "a time such as \"2s\"")?;
        let at = at_item.duration(Nanos::ZERO..=MAX_RUN)?;
        match all.last() {
            None if at != Nanos::ZERO => return Err(at_item.error("the first shift must be at \"0s\"")),
            Some((last, _)) if at <= *last => {
                return Err(at_item.error(format!("{at} is not after the shift before it, at {last}")));
            }
            _ if at >= duration => {
                return Err(at_item.error(format!("{at} is not before the run's end, run.duration = {duration}")));
            }
            _ => {}
        }
        all.push((at, demand(&table.require("demand", "a demand such as \"400k\" or \"1.4x\"")?)?));
    }
    Ok(all)
}

/// Reads a demand: `"1.4x"` of capacity, `"400k"` per second, or a bare number of requests per
/// second.
fn demand(item: &Item<'_>) -> Result<Demand, ScenarioError> {
    const EXPECTED: &str = "a demand above zero: multiples of capacity up to 1000 such as \"1.4x\", or requests per second such as \"400k\"";
    let read = match &item.node.value {
        super::document::Value::Text(text) => {
            parse_ratio(text).map(Demand::CapacityMultiple).or_else(|_| parse_scaled(text).map(Demand::Absolute)).ok()
        }
        super::document::Value::Integer(rate) => Some(Demand::Absolute(*rate as f64)),
        super::document::Value::Number(rate) => Some(Demand::Absolute(*rate)),
        _ => None,
    };
    let possible = |demand: &Demand| match *demand {
        Demand::Absolute(rate) => rate > 0.0 && rate <= 1e9,
        Demand::CapacityMultiple(ratio) => ratio > 0.0 && ratio <= 1e3,
    };
    read.filter(possible).ok_or_else(|| item.unexpected(EXPECTED))
}

/// Relative half-width of goodput in full runs.
const PRECISION: f64 = 0.01;
/// Warm-up on the real plant, as a part of the bound of simulated warm-ups.
const REAL_WARMUP: u64 = 10;
/// Measurement on the real plant, as a part of that bound.
const REAL_MEASURED: u64 = 5;

pub(super) fn run(item: &Item<'_>) -> Result<RunSettings, ScenarioError> {
    let table = item.table(&["settle", "precision", "warmup", "duration", "window", "seeds", "at_least"])?;
    let (settle, warmup, duration) = times(&table)?;
    let precision = match table.find("precision") {
        None => PRECISION,
        Some(item) => {
            let expected = "a relative half-width such as 0.01, up to 0.2";
            Some(item.number()?)
                .filter(|share| (0.0001..=0.2).contains(share))
                .ok_or_else(|| item.unexpected(expected))?
        }
    };
    let window = match table.find("window") {
        None => None,
        Some(item) => {
            let window = item.duration(Nanos(1_000)..=MAX_RUN)?;
            if duration.0 / window.0 > 100_000 {
                let problem = format!("{window} makes {} windows; accepted: up to 100000", duration.0 / window.0);
                return Err(item.error(problem));
            }
            Some(window)
        }
    };
    let at_least = table.count_or("at_least", 0..=10_000_000, 0)?;
    Ok(RunSettings {
        warmup,
        duration,
        window,
        seeds: table.count_or("seeds", 1..=1_000, 3)?,
        min_requests: at_least,
        settle,
        precision,
    })
}

/// Reads when runs are measured: the bound of the warm-up if they settle by themselves, the start
/// of the measurement, and the end.
///
/// Times that are given fix the run. Otherwise the times are those of the real plant, where nothing
/// observes the run.
fn times(table: &Reader<'_>) -> Result<(Option<Nanos>, Nanos, Nanos), ScenarioError> {
    let span = |key: &str, range| table.find(key).map(|item| item.duration(range)).transpose();
    let settle = span("settle", Nanos(1_000_000)..=MAX_RUN / 2)?;
    let (warmup, duration) = (span("warmup", Nanos::ZERO..=MAX_RUN)?, span("duration", Nanos(1_000)..=MAX_RUN)?);
    let (settle, warmup, duration) = match (settle, warmup, duration) {
        (Some(settle), None, None) => {
            return Ok((Some(settle), settle / REAL_WARMUP, settle / REAL_WARMUP + settle / REAL_MEASURED));
        }
        (Some(_), Some(warmup), None) => (None, warmup, warmup * 2),
        (Some(_), None, Some(duration)) => (None, duration / 2, duration),
        (_, warmup, Some(duration)) => (None, warmup.unwrap_or(Nanos::ZERO), duration),
        (None, _, None) => {
            let expected = "the bound of the warm-up, such as \"10s\"; or `warmup` and `duration` for fixed times";
            return Err(table.error("settle", format!("missing; expected {expected}")));
        }
    };
    if warmup >= duration {
        let problem =
            format!("{duration} leaves nothing to measure after run.warmup = {warmup}; accepted: more than that");
        return Err(table
            .find("duration")
            .map_or_else(|| table.error("duration", &problem), |item| item.error(&problem)));
    }
    Ok((settle, warmup, duration))
}
