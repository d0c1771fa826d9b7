//! Kinds of requests: they change only their own attributes.

use crate::common::run;
use leeward_core::units::{Cost, Nanos, Tenant};
use leeward_sim::config::{FirstServer, Replicas, RequestKind, RequestKinds};
use leeward_sim::{RunOutcome, SimConfig, service_time::ServiceTime, simulate};

fn config(demand: f64, kinds: Vec<RequestKind>) -> SimConfig {
    SimConfig {
        warmup: Nanos::from_millis(20),
        duration: Nanos::from_millis(120),
        kinds: RequestKinds(kinds),
        ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
    }
}

#[test]
fn kinds_that_differ_only_in_name_change_nothing() {
    // With kinds, `edge` gets the objective of each request.
    for algorithm in ["none", "breakwater", "dagor", "codel"] {
        let plain = run(&config(1.3, Vec::new()), algorithm);
        let named = run(&config(1.3, vec![RequestKind::new("a", 0.25), RequestKind::new("b", 0.75)]), algorithm);
        assert!(plain.kinds.is_empty() && named.kinds.len() == 2);
        assert_eq!(RunOutcome { kinds: Vec::new(), ..named }, plain, "{algorithm}");
    }
}

#[test]
fn a_kind_is_held_to_its_own_deadline() {
    let tight = RequestKind { deadline: Some(Nanos::from_micros(60)), ..RequestKind::new("tight", 0.5) };
    let loose = RequestKind { deadline: Some(Nanos::from_secs(1)), ..RequestKind::new("loose", 0.5) };
    let outcome = run(&config(0.95, vec![tight.clone(), loose.clone()]), "none");
    let [hurried, patient] = outcome.kinds.as_slice() else { panic!("two kinds") };
    assert!(patient.counts.good == patient.counts.completed && hurried.counts.good < hurried.counts.completed);
    // A controller with knowledge of kinds rejects some requests that would be late, and next to
    // none of the others.
    let informed = run(&config(0.95, vec![tight, loose]), "edge");
    let late = |outcome: &RunOutcome| outcome.kinds[0].counts.completed - outcome.kinds[0].counts.good;
    assert!(informed.kinds[0].counts.dropped > 0 && late(&informed) < late(&outcome), "{:?}", informed.kinds);
    let patient = informed.kinds[1].counts;
    assert!(patient.dropped * 1_000 < patient.offered, "{patient:?}");
}

#[test]
fn tenants_classes_and_costs_reach_the_controller() {
    let tenant = |name, share, tenant| RequestKind { tenant: Tenant(tenant), ..RequestKind::new(name, share) };
    let refused = |outcome: &RunOutcome, index: usize| {
        let counts = outcome.kinds[index].counts;
        counts.dropped as f64 / counts.offered as f64
    };
    let outcome = run(&config(2.0, vec![tenant("flood", 0.9, 1), tenant("modest", 0.1, 2)]), "edge");
    assert!(refused(&outcome, 0) > 0.4 && refused(&outcome, 1) < 0.1, "{:?}", outcome.kinds);
    let class = |name, share, class| RequestKind { class: Some(class), ..RequestKind::new(name, share) };
    let outcome = run(&config(2.0, vec![class("first", 0.3, 0), class("last", 0.7, 7)]), "edge");
    assert!(refused(&outcome, 0) < 0.05 && refused(&outcome, 1) > 0.5, "{:?}", outcome.kinds);
    // Equal request rates of two tenants, one at four times the cost: fewer of its requests are
    // admitted.
    let expensive = RequestKind { cost: Cost(4), ..tenant("dear", 0.5, 1) };
    let outcome = run(&config(2.0, vec![expensive, tenant("cheap", 0.5, 2)]), "edge");
    assert!(refused(&outcome, 0) > refused(&outcome, 1) + 0.2, "{:?}", outcome.kinds);
}

#[test]
fn kinds_pass_the_conservation_check_on_several_servers() {
    let replicas = Replicas { servers: 2, first: FirstServer::InTurn, credit_timeout: None };
    let kinds = vec![
        RequestKind { class: Some(1), ..RequestKind::new("a", 0.3) },
        RequestKind { class: Some(5), ..RequestKind::new("b", 0.7) },
    ];
    let outcome = run(&SimConfig { replicas: Some(replicas), ..config(2.5, kinds) }, "dagor");
    let sum = outcome.kinds.iter().map(|kind| kind.counts.completed).sum::<u64>();
    assert_eq!(sum, outcome.counts.completed);
    assert!(outcome.replicas.iter().all(|server| server.kinds.len() == 2));
}

#[test]
fn impossible_kinds_are_refused() {
    let registry = leeward_controllers::builtin();
    let none = registry.find("none").unwrap();
    let refused = |config: &SimConfig| simulate(config, none, &none.params(&[]).unwrap()).unwrap_err().to_string();
    assert!(refused(&config(1.0, vec![RequestKind::new("a", 0.5)])).contains("add up"));
    let empty = RequestKind { service: Some(ServiceTime::Empirical(Vec::new().into())), ..RequestKind::new("a", 1.0) };
    assert!(refused(&config(1.0, vec![empty])).contains("at least one sample"));
}
