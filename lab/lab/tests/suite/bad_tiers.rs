//! Tiers with mistakes: each is reported in one line with file, line, key and accepted values.

use leeward_lab::{Scenario, ScenarioError};
use std::path::Path;

const GOOD: &str = include_str!("../golden/tier.toml");

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("tier.toml", text, Path::new(""), &[], false, &leeward_controllers::builtin())
}

/// Replaces `from` by `to` and expects an error with all `parts`, in one line that names a line of
/// the file.
fn check(from: &str, to: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let message = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
    assert!(message.starts_with("tier.toml:"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn a_good_tier_is_read() {
    let scenario = read(GOOD).unwrap();
    let names: Vec<&str> = scenario.workload.services.iter().map(|service| service.text.as_str()).collect();
    assert_eq!(names, ["small", "keyed"]);
    let labels: Vec<&str> = scenario.controllers.iter().map(|variant| variant.label.as_str()).collect();
    assert_eq!(labels, ["SIP1", "SDB1-4", "ADP1-2-2@16us", "utune", "leeward", "ipi"]);
    let costs = |tier: usize| scenario.tiers[tier].tier.costs.clone();
    assert_eq!(
        (costs(0).cache_line.0, costs(1).cache_line.0),
        (100, 80),
        "a factor of 2 on all and of a half on the line"
    );
    assert_eq!((costs(0).receive.0, costs(1).receive.0), (21_500, 4_000));
}

#[test]
fn mistakes_in_a_tier_are_named() {
    check("name = \"keyed\"", "name = \"small\"", &["`small` is in use"]);
    check("leaves = 2", "leaves = 0", &["leaves", "from 1 to 64"]);
    check("leaves = 2", "leafs = 2", &["leafs", "unknown key"]);
    check("leaf = \"wait:exp:80us\"\n", "", &["leaf", "missing"]);
    check("leaf = \"wait:exp:80us\"", "leaf = \"wait:80us\"", &["leaf", "service time"]);
    check("replicas = 3", "replicas = 5", &["replicas", "from 1 to 4"]);
    check("writes = 0.5", "writes = 1.5", &["writes", "share from 0 to 1"]);
    check("ask = \"hash\"\n", "", &["needs `ask = \"hash\"`"]);
    let after_rtt = |line: &str| format!("rtt = \"20us\"\n{line}\ngather");
    let tail = |line: &str, parts: &[&str]| check("rtt = \"20us\"\ngather", &after_rtt(line), parts);
    tail("copies = 3", &["copies", "from 1 to 2"]);
    tail("second_calls = \"always\"", &["second_calls", "\"never\", \"budgeted\""]);
    tail("second_calls = \"budgeted\"", &["at least two"]);
    tail("copies = 2\nsecond_calls = \"budgeted\"", &["`own` connections"]);
    tail("drops_after = \"1ms\"", &["`own` connections"]);
    tail("drops_after = \"2s\"", &["drops_after", "duration"]);
    tail("host_call = \"2s\"", &["host_call", "duration"]);
    tail("slow = { leaf = 3, share = 0.1, by = \"1ms\" }", &["leaf", "from 1 to 2"]);
    tail("slow = { leaf = 1, share = 1.1, by = \"1ms\" }", &["share from 0 to 1"]);
    tail("slow = { leaf = 1, share = 0.1 }", &["by", "missing"]);
    check("gather = \"fork-join\"", "gather = \"helpers\"", &["gather", "\"fork-join\""]);
    check("scale = { all = 2", "scale = { all = -2", &["factor from 0 to 100"]);
    check("scale = { all = 2, line", "scale = { all = 2, lines", &["lines", "unknown key"]);
}

#[test]
fn mistakes_in_costs_are_named() {
    check("preset = \"grpc\"", "preset = \"thrift\"", &["preset", "\"leeward\", \"grpc\""]);
    check("line = \"100ns\"", "line = \"2s\"", &["line", "duration"]);
    check("line = \"100ns\"", "slice = \"0s\"", &["slice", "duration"]);
    check("\"1us\", \"2us\", \"3us\"", "\"1us\", \"3us\", \"2us\"", &["wake", "ascending"]);
    check("\"1us\", \"2us\", \"3us\", \"4us\"", "\"1us\", \"2us\", \"3us\"", &["wake", "six"]);
}

#[test]
fn mistakes_in_threading_are_named() {
    check("\"SDB1-4\", \"ADP", "\"SDB0-4\", \"ADP", &["threading", "SDB0-4"]);
    check("\"utune\"", "\"mtune\"", &["unknown threading policy `mtune`"]);
    check("\"utune\"", "\"SIP1\"", &["label `SIP1` is in use"]);
    check("\"ipi\"]", "\"ipi\"]\nthreading_params = { window = 1 }", &["window"]);
    // A controller is part of the label, but the claims of this file name labels without one.
    check("name = \"none\"", "name = \"breakwater\"", &["no controller is labelled `SDB1-4`", "breakwater SDB1-4"]);
    check(
        "[train]\nsetups = [\"SIP1\", \"SDB1-4\", \"AIP1-0-1\"]",
        "[train]\nsetups = [\"SIP1\", \"SIP0\"]",
        &["SIP0"],
    );
    let unclaimed = GOOD.split("[[claim]]").next().unwrap();
    let train = "[train]\nsetups = [\"SIP1\", \"SDB1-4\", \"AIP1-0-1\"]\nlowest = 1000\nrequests = 600\n";
    for (from, to, part) in
        [(train, "", "expected a section [train]"), ("threading = [", "# threading = [", "has no `threading`")]
    {
        let message = read(&unclaimed.replace(from, to)).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_tier_requires_a_matching_workload() {
    check("slo = \"2ms\"\n", "", &["slo", "missing"]);
    check("slo = \"2ms\"", "slo = \"2ms\"\nservice = \"exp:10us\"", &["service", "not allowed beside [tier]"]);
    let plain = "id = \"x\"\ntitle = \"x\"\n[workload]\nservice = \"exp:10us\"\nclients = 1\ndemand = [\"1x\"]\n[run]\nduration = \"1ms\"\n[[controller]]\nname = \"none\"\n";
    assert!(read(plain).is_ok());
    for (from, to, part) in [
        ("clients = 1", "clients = 1\narrivals = [\"poisson\", \"constant\"]", "a list without a [tier]"),
        ("name = \"none\"", "name = \"none\"\nthreading = \"SIP1\"", "there is no [tier]"),
        ("name = \"none\"", "name = \"none\"\nthreading_params = { window = 5 }", "needs `threading`"),
    ] {
        let message = read(&plain.replace(from, to)).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
