//! Kinds of requests: rows, claims, and mistakes, each reported in one line with file, key and
//! accepted values.

use leeward_core::units::{Cost, Nanos, Tenant};
use leeward_lab::results::Verdict;
use leeward_lab::run::{Options, run};
use leeward_lab::{Results, Scenario, ScenarioError};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const GOOD: &str = r#"id = "mixed"
title = "Two kinds"
[server]
cores = 2
[workload]
service = "const:10us"
clients = 20
demand = ["0.5x", "2x"]
slo = "400us"
[[kind]]
name = "front"
share = "80%"
tenant = 3
class = 0
[[kind]]
name = "batch"
share = 0.2
tenant = 3
class = 7
deadline = "1ms"
cost = 4
service = "exp:40us"
[run]
warmup = "5ms"
duration = "55ms"
seeds = 1
[[controller]]
name = "edge"
[[controller]]
name = "none"
[[claim]]
id = "front"
text = "the front is hardly refused"
paper = "none"
ours = true
measure = "kinds.refused_rate{edge, demand_ratio=2, kind=front} - kinds.refused_rate{edge, demand_ratio=2, kind=batch}"
max = -0.3
"#;

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("mixed.toml", text, Path::new(""), &[], false, &leeward_controllers::builtin())
}

fn results(text: &str) -> Results {
    let options = Options { threads: Some(1), ..Options::default() };
    let registry = leeward_controllers::builtin();
    run(&read(text).unwrap(), &registry, &options, &|_| {}, &AtomicBool::new(false)).unwrap()
}

/// Replaces `from` by `to` and expects an error with all `parts`, in one line.
fn check(from: &str, to: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let message = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
    assert!(message.starts_with("mixed.toml:"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn kinds_are_read_as_written() {
    let scenario = read(GOOD).unwrap();
    let [front, batch] = scenario.kinds.0.as_slice() else { panic!("two kinds") };
    assert_eq!((front.tenant, front.class, front.cost, front.deadline), (Tenant(3), Some(0), Cost::ONE, None));
    assert_eq!((batch.class, batch.cost, batch.deadline), (Some(7), Cost(4), Some(Nanos::from_millis(1))));
    let services = &scenario.workload.services;
    assert_eq!(scenario.kinds.mean(&services[0].service), Nanos::from_micros(16));
    let capacity = scenario.capacity_of(&services[0]).0;
    assert!((capacity - scenario.server.capacity(Nanos::from_micros(16)).0).abs() < 1e-6, "of all kinds");
}

#[test]
fn mistakes_are_named() {
    check("name = \"batch\"", "name = \"front\"", &["kind.name", "`front` is in use"]);
    check("name = \"batch\"", "name = \"a b\"", &["kind.name", "letters"]);
    check("name = \"batch\"\n", "", &["kind.name", "missing"]);
    check("share = 0.2\n", "", &["kind.share", "missing"]);
    for share in ["0", "-0.2", "1.5", "\"many\"", "nan", "\"0%\""] {
        check("share = 0.2", &format!("share = {share}"), &["kind.share", "above 0% and up to 100%"]);
    }
    check("share = 0.2", "share = 0.3", &["kind", "add up to 110.0000 %"]);
    for class in ["8", "-1", "0.5", "\"high\""] {
        check("class = 7", &format!("class = {class}"), &["kind.class", "from 0 to 7"]);
    }
    for cost in ["0", "-4", "1.5", "1000001"] {
        check("cost = 4", &format!("cost = {cost}"), &["kind.cost", "from 1 to 1000000"]);
    }
    check("tenant = 3", "tenant = -3", &["kind.tenant", "whole number"]);
    check("deadline = \"1ms\"", "deadline = 1", &["kind.deadline", "a duration"]);
    check("deadline = \"1ms\"", "deadline = \"0ms\"", &["kind.deadline", "a duration"]);
    check("exp:40us", "exp:40", &["kind.service", "service time"]);
    check("exp:40us", "search", &["kind.service", "drawn"]);
    check("cost = 4", "costs = 4", &["kind.costs", "unknown key", "deadline"]);
    check("[[kind]]\nname = \"front\"", "[kind.front]\nname = \"front\"", &[""]);
}

#[test]
fn kinds_with_their_own_services_need_no_workload_service() {
    let own = GOOD.replacen("class = 0", "class = 0\nservice = \"const:5us\"", 1);
    let message = read(&own).unwrap_err().to_string();
    assert!(message.contains("workload.service") && message.contains("[[kind]]"), "{message}");
    let alone = own.replacen("service = \"const:10us\"\n", "", 1);
    let scenario = read(&alone).unwrap();
    assert_eq!(scenario.workload.services[0].text, "kinds");
    let message = read(&GOOD.replacen("service = \"const:10us\"\n", "", 1)).unwrap_err().to_string();
    assert!(message.contains("workload.service") && message.contains("missing"), "{message}");
}

#[test]
fn every_kind_of_every_run_has_a_row() {
    let results = results(GOOD);
    assert_eq!((results.points.len(), results.kinds.len()), (4, 8));
    for (point, kinds) in results.points.iter().zip(results.kinds.chunks(2)) {
        let [front, batch] = kinds else { panic!("two each") };
        assert_eq!((front.kind.as_str(), batch.kind.as_str()), ("front", "batch"));
        assert_eq!((&front.run, &front.workload), (&point.run, &point.workload));
        assert_eq!((front.tenant, front.class, batch.cost), (3, Some(0), 4));
        assert_eq!((front.objective_us, batch.objective_us), (400.0, 1_000.0));
        assert!((front.goodput_rps + batch.goodput_rps - point.goodput_rps).abs() < 1.0, "{point:?}");
        let share = front.offered_rps / (front.offered_rps + batch.offered_rps);
        assert!((share - 0.8).abs() < 0.05, "{share}");
    }
    assert_eq!(results.claims[0].verdict, Verdict::Reproduced, "{:?}", results.claims[0]);
}
