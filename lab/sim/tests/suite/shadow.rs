//! Shadow mode in the simulator: its predicted rejections compared with the enforced ones for the
//! same requests, in four scenarios.

use leeward_core::units::{Cost, Nanos, Rate, Tenant};
use leeward_sim::config::{RequestKind, RequestKinds, Segment, Workload};
use leeward_sim::{RunOutcome, SimConfig, SimError, service_time::ServiceTime, simulate};

fn run(name: &str, config: &SimConfig) -> Result<RunOutcome, SimError> {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(name).unwrap();
    let outcome = simulate(config, algorithm, &algorithm.params(&[]).unwrap())?;
    assert_eq!(outcome.violations, [""; 0]);
    Ok(outcome)
}

/// The testbed with a short warm-up: an overloaded server receives requests long after they were
/// sent.
fn config(demand: f64, kinds: Vec<RequestKind>) -> SimConfig {
    SimConfig {
        warmup: Nanos::from_millis(50),
        duration: Nanos::from_millis(250),
        kinds: RequestKinds(kinds),
        ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
    }
}

/// Twice the capacity for 10 ms in each 50 ms, and half of it between.
fn bursts() -> SimConfig {
    let config = config(1.0, Vec::new());
    let capacity = config.workload.demand[0].rate.0;
    let segment = |at: u64, factor: f64| Segment { from: Nanos::from_millis(at), rate: Rate(capacity * factor) };
    let demand = (0..5).flat_map(|burst| [segment(burst * 50, 2.0), segment(burst * 50 + 10, 0.5)]).collect();
    SimConfig { workload: Workload { demand, ..config.workload.clone() }, ..config }
}

/// Ten tenants; the first sends as many requests as all others.
fn tenants() -> SimConfig {
    let tenant = |number: u32| {
        let share = if number == 0 { 0.5 } else { 0.5 / 9.0 };
        RequestKind { tenant: Tenant(number + 1), ..RequestKind::new(&format!("t{number}"), share) }
    };
    config(1.5, (0..10).map(tenant).collect())
}

fn costs() -> SimConfig {
    let expensive = ServiceTime::Exponential(Nanos::from_micros(100));
    let kinds = vec![
        RequestKind { cost: Cost(10), service: Some(expensive), ..RequestKind::new("dear", 0.1) },
        RequestKind {
            service: Some(ServiceTime::Exponential(Nanos::from_micros(10))),
            ..RequestKind::new("cheap", 0.9)
        },
    ];
    let mut config = config(1.0, kinds);
    config.slo = Nanos::from_millis(1);
    let capacity = config.server.capacity(config.kinds.mean(&config.workload.service));
    config.workload.demand[0].rate = Rate(capacity.0 * 1.5);
    config
}

#[test]
fn shadow_mode_predicts_the_rejections_of_enforcement() {
    for (name, config) in
        [("steady", config(1.5, Vec::new())), ("bursts", bursts()), ("tenants", tenants()), ("costs", costs())]
    {
        let enforced = run("edge", &config).unwrap();
        let shadow = run("edge", &SimConfig { enforced: 0, ..config }).unwrap();
        assert_eq!((shadow.server.rejected, enforced.server.foreseen), (0, 0), "{name}");
        let share = |part: u64, of: &RunOutcome| part as f64 / of.server.received as f64;
        let refused = share(enforced.server.rejected, &enforced);
        let foreseen = share(shadow.server.foreseen, &shadow);
        println!("{name}: {:.1} % refused, {:.1} % foreseen", refused * 100.0, foreseen * 100.0);
        assert!(refused > 0.05, "{name}: no overload");
        assert!((0.8..=1.2).contains(&(foreseen / refused)), "{name}: {foreseen} foreseen, {refused} refused");
    }
}

#[test]
fn a_percentage_of_the_clients_has_rejections_enforced() {
    let foreseen = |enforced: u8| run("edge", &SimConfig { enforced, ..config(1.5, Vec::new()) }).unwrap().server;
    let (shadow, part) = (foreseen(0), foreseen(30));
    assert!(part.rejected > 0 && part.rejected < part.foreseen, "{part:?}");
    let share = part.rejected as f64 / part.foreseen as f64;
    assert!((0.2..0.4).contains(&share), "{share} of the refusals are for 30 % of the clients");
    assert_eq!((shadow.rejected, shadow.foreseen > 0), (0, true));
    // Rejected requests are not executed, so the server reads more of the sent requests.
    assert!(part.received > shadow.received, "{part:?} {shadow:?}");
}

#[test]
fn shadow_mode_predicts_no_rejections_without_overload() {
    let outcome = run("edge", &SimConfig { enforced: 0, ..config(0.5, Vec::new()) }).unwrap().server;
    assert!(outcome.foreseen * 1_000 < outcome.received, "{outcome:?}");
}

#[test]
fn what_shadow_mode_cannot_do_is_refused_with_a_message() {
    let refused =
        |name: &str, config: SimConfig| run(name, &SimConfig { enforced: 50, ..config }).unwrap_err().to_string();
    assert!(refused("breakwater", config(1.0, Vec::new())).contains("`breakwater` gives credits"));
    let replicas = leeward_sim::config::Replicas {
        servers: 2,
        first: leeward_sim::config::FirstServer::InTurn,
        credit_timeout: None,
    };
    let message = refused("edge", SimConfig { replicas: Some(replicas), ..config(1.0, Vec::new()) });
    assert!(message.contains("shadow mode needs one server"), "{message}");
}
