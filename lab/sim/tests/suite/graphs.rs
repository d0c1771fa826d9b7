//! Graphs of services: comparison with queueing theory, accounting on random graphs, determinism,
//! and the effects of reservations and `downstream`.

use crate::common::graphs::{call, config, draw, free, run};
use leeward_core::params::RawParam;
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::Segment;
use leeward_sim::graph::model::{
    CallModel, CallPolicy, DeadlinePolicy, DownstreamReports, Graph, ServiceModel, StartCondition,
};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, SimError, simulate};

const MICRO: u64 = 1_000;

fn exponential(micros: u64) -> ServiceTime {
    ServiceTime::Exponential(Nanos::from_micros(micros))
}

fn graph(services: Vec<ServiceModel>, calls: Vec<CallModel>) -> Graph {
    Graph { services, calls, policy: CallPolicy::default() }
}

/// A tandem of M/M/1 queues is a Jackson network: each queue behaves as if alone, 1/(μ − λ), and
/// the times add up.
///
/// On its way back a request costs nothing, but waits for the core to finish its current work, ρ/μ
/// on average.
#[test]
fn a_chain_of_single_servers_is_a_jackson_network() {
    let means = [10u64, 20, 14];
    let names = ["a", "b", "c"];
    let services = names.iter().zip(means).map(|(name, mean)| free(name, 1, exponential(mean))).collect();
    let mut config =
        config(graph(services, vec![call(0, 1), call(1, 2)]), 100, 35_000.0, Nanos::from_secs(1), 20_000, 3);
    config.audit = false;
    let report = run(&config, "none", &[]);
    let sojourn = |mean: u64| 1.0 / (1e9 / (mean * MICRO) as f64 - 35_000.0) * 1e9;
    let back = |mean: u64| 35_000.0 / 1e9 * (mean * MICRO) as f64 * (mean * MICRO) as f64;
    let there: f64 = means.iter().map(|mean| sojourn(*mean)).sum();
    let expected = there + means[..2].iter().map(|mean| back(*mean)).sum::<f64>();
    assert!((report.latency.mean_ns / expected - 1.0).abs() < 0.03, "{} of {expected}", report.latency.mean_ns);
    let services = &report.graph.as_ref().unwrap().services;
    // A caller's latency includes its callee and everything downstream.
    let last = services[2].latency.mean_ns;
    assert!((last / sojourn(14) - 1.0).abs() < 0.03, "{last} of {}", sojourn(14));
    let utilization = 35_000.0 * (20 * MICRO) as f64 / 1e9;
    assert!((services[1].cpu_utilization / utilization - 1.0).abs() < 0.02, "{services:?}");
}

/// With as many cores as requests, a fan-out takes the longest of n exponential times: the mean is
/// the harmonic number.
#[test]
fn a_fan_out_waits_for_the_slowest() {
    let count = 8;
    let mut services = vec![free("root", 128, ServiceTime::Constant(Nanos(1)))];
    services.extend((0..count).map(|leaf| free(&format!("leaf{leaf}"), 128, exponential(50))));
    let calls = (1..=count).map(|leaf| call(0, leaf)).collect();
    let report = run(&config(graph(services, calls), 10, 10_000.0, Nanos::from_secs(1), 2_000, 5), "none", &[]);
    let harmonic: f64 = (1..=count).map(|k| 1.0 / k as f64).sum();
    let expected = 50_000.0 * harmonic;
    assert!((report.latency.mean_ns / expected - 1.0).abs() < 0.03, "{} of {expected}", report.latency.mean_ns);
}

#[test]
fn random_graphs_pass_the_conservation_check_under_every_controller() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        for seed in 0..12 {
            let report = run(&draw(seed), algorithm.name, &[]);
            assert!(report.totals.offered > 0, "{} {seed}", algorithm.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 20..26 {
        assert_eq!(run(&draw(seed), "breakwater", &[]), run(&draw(seed), "breakwater", &[]), "{seed}");
    }
    assert_ne!(run(&draw(20), "breakwater", &[]), run(&draw(21), "breakwater", &[]));
}

/// Two tiers, the second twice as slow as the first, at twice the second's capacity.
fn narrow(passing: CallPolicy, seed: u64) -> RunOutcome {
    let cost = |service| ServiceModel { receive: Nanos(750), send: Nanos(765), rtt: Nanos::from_micros(10), ..service };
    let services = vec![cost(free("front", 4, exponential(10))), cost(free("back", 4, exponential(20)))];
    let graph = Graph { policy: passing, ..graph(services, vec![call(0, 1)]) };
    let rate = graph.capacity().0 * 2.0;
    let config = config(graph, 200, rate, Nanos::from_micros(500), 400, seed);
    run(&config, "breakwater", &[("additive", RawParam::Text("at_least_one".into()))])
}

#[test]
fn reservations_reduce_wasted_upstream_work() {
    let ours =
        CallPolicy { start: StartCondition::Reserved, downstream: DownstreamReports::On, ..CallPolicy::default() };
    let reserved = narrow(ours, 1);
    let admitted = narrow(CallPolicy::default(), 1);
    let wasted = |report: &RunOutcome| report.graph.as_ref().unwrap().wasted_upstream_cpu;
    assert!(wasted(&reserved) < 0.1, "{}", wasted(&reserved));
    assert!(wasted(&reserved) < 0.5 * wasted(&admitted), "{} and {}", wasted(&reserved), wasted(&admitted));
    assert!(reserved.counts.good as f64 >= 0.95 * admitted.counts.good as f64);
}

/// Goodput over the demand of 0.3 times the capacity, long after the start and after an overload.
fn served_by_reservation(model: CallModel, servers: u32, controller: &str, params: &[(&str, RawParam)]) -> f64 {
    let cost = |service| ServiceModel { receive: Nanos(750), send: Nanos(765), rtt: Nanos::from_micros(10), ..service };
    let leaf = ServiceModel { servers, ..cost(free("leaf", 1, exponential(100))) };
    let policy = CallPolicy {
        start: StartCondition::Reserved,
        downstream: DownstreamReports::On,
        deadlines: DeadlinePolicy::Enforced,
        ..CallPolicy::default()
    };
    let graph = Graph { policy, ..graph(vec![cost(free("front", 4, exponential(50))), leaf], vec![model]) };
    let capacity = graph.capacity().0;
    let mut config = config(graph, 100, 0.3 * capacity, Nanos::from_millis(5), 3_000, 1);
    let shift = |at: u64, factor: f64| Segment { from: Nanos::from_millis(at), rate: Rate(factor * capacity) };
    config.workload.demand.extend([shift(1_000, 3.0), shift(1_500, 0.3)]);
    config.warmup = Nanos::from_secs(2);
    let report = run(&config, controller, params);
    report.counts.good as f64 / report.counts.offered as f64
}

#[test]
fn a_request_with_more_calls_than_credits_is_served() {
    for (times, servers) in [(2, 1), (3, 2), (8, 1)] {
        for controller in ["breakwater", "auto"] {
            let model = CallModel { times, ..call(0, 1) };
            let served = served_by_reservation(model, servers, controller, &[]);
            assert!(served > 0.9, "{controller}: {served} of {times} calls to {servers} servers");
        }
    }
}

/// This algorithm limits calls at its clients, and its servers grant nothing. With two requests at
/// once, the six calls of its window lack two, and its queue has room for one.
#[test]
fn a_request_waits_for_the_window_of_its_client() {
    let params = [("initial", 6), ("max_window", 6), ("client_queue", 1)];
    let params = params.map(|(name, count)| (name, RawParam::Integer(count)));
    let served = served_by_reservation(CallModel { times: 4, ..call(0, 1) }, 1, "window", &params);
    assert!(served > 0.98, "{served}");
}

/// The clients' limit of unanswered calls counts, not only the servers' credits.
#[test]
fn a_request_with_more_calls_than_a_client_may_send_is_served() {
    let params = [("max_outstanding", RawParam::Integer(2))];
    for controller in ["breakwater", "window"] {
        let served = served_by_reservation(CallModel { times: 4, ..call(0, 1) }, 1, controller, &params);
        assert!(served > 0.9, "{controller}: {served}");
    }
}

/// A server that waits for reports of demand grants nothing before the first one.
#[test]
fn waiting_requests_report_their_demand() {
    let params = [("demand", RawParam::Text("synchronization".into()))];
    for times in [1, 2] {
        let served = served_by_reservation(CallModel { times, ..call(0, 1) }, 1, "breakwater", &params);
        assert!(served > 0.9, "{served} of {times} calls");
    }
}

/// Retries stay within their budget under overload.
#[test]
fn retries_add_no_more_than_their_budget() {
    let none = narrow(CallPolicy::default(), 2);
    let some = narrow(CallPolicy { retries: 0.1, deadlines: DeadlinePolicy::Enforced, ..CallPolicy::default() }, 2);
    let received = |report: &RunOutcome| report.graph.as_ref().unwrap().services[1].received as f64;
    assert!(received(&some) <= 1.1 * received(&none) + 20.0, "{} after {}", received(&some), received(&none));
}

#[test]
fn impossible_graphs_are_refused() {
    let services = || vec![free("a", 1, exponential(1)), free("b", 1, exponential(1))];
    let refused = |graph: Graph| {
        let none = leeward_controllers::builtin().find("none").unwrap().clone();
        let config = config(graph, 1, 1.0, Nanos::from_secs(1), 10, 1);
        match simulate(&config, &none, &none.params(&[]).unwrap()) {
            Err(SimError::Config(problem)) => problem,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(graph(services(), Vec::new())).contains("no request reaches `b`"));
    assert!(refused(graph(services(), vec![call(0, 1), call(1, 0)])).contains("circle"));
    assert!(refused(graph(services(), vec![call(0, 7)])).contains("a call is from"));
    assert!(refused(graph(Vec::new(), Vec::new())).contains("1 to 1000 services"));
    let mut coreless = services();
    coreless[1].cores = 0;
    assert!(refused(graph(coreless, vec![call(0, 1)])).contains("1 to 128 cores"));
    let mut duplicates = services();
    duplicates[1].name = "a".into();
    assert!(refused(graph(duplicates, vec![call(0, 1)])).contains("two services are called `a`"));
}
