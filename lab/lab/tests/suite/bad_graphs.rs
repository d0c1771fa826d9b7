//! Graphs with mistakes: each is reported in one line with file, line, key and accepted values, and
//! nothing is run. A valid graph: the rows of its services.

use leeward_lab::run::{Options, run};
use leeward_lab::{Scenario, ScenarioError};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const GOOD: &str = include_str!("../golden/graph.toml");

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("graph.toml", text, Path::new(""), &[], false, &leeward_controllers::builtin())
}

/// Replaces `from` by `to` and expects an error with all `parts`, in one line that names a line of
/// the file.
fn check(from: &str, to: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let message = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
    assert!(message.starts_with("graph.toml:"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn mistakes_in_services_are_named() {
    check("name = \"left\"", "name = \"front\"", &["service.name", "two services are called `front`"]);
    check("servers = 2", "servers = 0", &["service.servers", "from 1 to 1000"]);
    check("cores = 3", "cores = 0", &["service.cores", "from 1 to 128"]);
    check("time = \"const:6us\"", "", &["time", "missing"]);
    check("time = \"const:6us\"", "time = \"6us\"", &["time", "service time"]);
    check("resume = \"1us\"", "resumes = \"1us\"", &["resumes", "unknown key"]);
    check("slo = \"500us\"\n", "", &["slo", "missing"]);
    check("[workload]\n", "[workload]\nservice = \"exp:10us\"\n", &["workload.service", "allowed beside [[service]]"]);
}

#[test]
fn mistakes_in_calls_are_named() {
    check("from = \"left\"\nto = \"store\"", "from = \"left\"\nto = \"shop\"", &["call.to", "`shop` is not a service"]);
    check("from = \"left\"\nto = \"store\"", "from = \"store\"\nto = \"front\"", &["circle", "call.to"]);
    check("from = \"front\"\nto = \"left\"", "from = \"left\"\nto = \"right\"", &["no request reaches `left`"]);
    check("from = \"left\"\nto = \"store\"", "from = \"left\"\nto = \"left\"", &["circle"]);
    check("share = 0.5", "share = 1.5", &["call.share", "share from 0 to 1"]);
    check("times = 2", "times = 65", &["call.times", "from 1 to 64"]);
    check("when = \"then\"", "when = \"later\"", &["call.when", "\"together\", \"then\""]);
    check("from = \"right\"\nto = \"store\"", "from = \"left\"\nto = \"store\"", &["the same two services"]);
}

#[test]
fn conflicting_parts_are_named() {
    check("begin = \"reserved\"", "begin = \"soon\"", &["controller.begin", "\"admitted\", \"reserved\""]);
    check("retries = 0.1", "retries = 2", &["controller.retries", "share from 0 to 1"]);
    check("[server]\n", "[replicas]\nservers = 2\n\n[server]\n", &["replicas"]);
    let plain = GOOD.split("[[service]]").next().unwrap();
    let rest = &GOOD[GOOD.find("[workload]").unwrap()..];
    let alone = format!("{plain}{}", rest.replacen("[workload]", "[workload]\nservice = \"exp:10us\"", 1));
    let message = read(&alone).unwrap_err().to_string();
    assert!(message.contains("says how tiers pass requests on"), "{message}");
    let orphans = alone.replacen("[workload]", "[[call]]\nfrom = \"a\"\nto = \"b\"\n\n[workload]", 1);
    let message = read(&orphans).unwrap_err().to_string();
    assert!(message.contains("needs [[service]]"), "{message}");
}

#[test]
fn rows_of_a_graph_do_not_depend_on_the_number_of_threads() {
    let scenario = read(GOOD).unwrap();
    let results = |threads| {
        let options = Options { threads: Some(threads), ..Options::default() };
        run(&scenario, &leeward_controllers::builtin(), &options, &|_| {}, &AtomicBool::new(false)).unwrap()
    };
    let found = results(1);
    assert_eq!(found, results(2));
    assert_eq!((found.points.len(), found.services.len()), (4, 16));
    let names: Vec<&str> = found.services.iter().take(4).map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["front", "left", "right", "store"]);
    assert!(found.points.iter().all(|point| point.workload.service == "graph" && point.wasted_cpu.is_some()));
    assert!(
        found.services.iter().all(|row| row.received_rps > 0.0 && row.cpu_utilization > 0.0),
        "{:?}",
        found.services
    );
    // Cost of a request per service: half of the requests call the right service, which calls the
    // store twice.
    assert!(found.points.iter().all(|point| point.capacity_rps > 0.0));
}
