//! Scenarios with mistakes: each mistake is reported in one line with file, line, key and accepted
//! values.

use leeward_lab::{Scenario, ScenarioError};
use leeward_sim::config::{Aqm, InitialCores, RevokePolicy, StealAmount};
use std::path::Path;

const GOOD: &str = r#"id = "sample"
title = "A sample"

[server]
cores = 2

[network]
rtt = "10us"

[workload]
service = "exp:10us"
clients = 10
demand = ["0.5x", "2x"]

[run]
warmup = "1ms"
duration = "2ms"
seeds = 1

[[controller]]
name = "breakwater"
params = { target = "80us" }

[[plot]]
title = "Goodput"
x = "demand_rps"
y = "goodput_rps"

[[claim]]
id = "ratio"
text = "a ratio"
paper = "one"
measure = "goodput_rps{breakwater, demand_ratio=2} / 1000"
min = 1
"#;

fn read(text: &str, overrides: &[&str], quick: bool) -> Result<Scenario, ScenarioError> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    Scenario::parse("sample.toml", text, Path::new(""), &overrides, quick, &leeward_controllers::builtin())
}

/// Replaces `from` by `to` and expects an error with all `parts`, in one line.
fn check(from: &str, to: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let line = GOOD[..GOOD.find(from).unwrap()].lines().count() + usize::from(!from.starts_with('['));
    let message = read(&text, &[], false).expect_err(to).to_string();
    assert!(message.starts_with("sample.toml:"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        let part = part.replace("HERE", &line.max(1).to_string());
        assert!(message.contains(&part), "`{part}` is not in: {message}");
    }
}

#[test]
fn a_slow_period_needs_waits_and_fixed_times() {
    let slow = "cores = 2\nslow = { from = \"1ms\", until = \"2ms\", factor = 3 }";
    check("cores = 2", slow, &["server.slow", "no [[workload.path]] has a step such as \"wait 90%\""]);
    check(
        "cores = 2",
        "cores = \"2\"",
        &["HERE", "server.cores", "`2` is not a whole number from 1 to 128, without quotes"],
    );
    let text = GOOD.replace("cores = 2", slow).replace("warmup = \"1ms\"\nduration = \"2ms\"", "settle = \"1s\"").replace(
        "clients = 10\n",
        "clients = 10\nlocks = [\"disk\"]\npath = [{ share = \"100%\", steps = [\"lock disk\", \"wait 100%\", \"unlock disk\"] }]\n",
    );
    let message = read(&text, &[], false).unwrap_err().to_string();
    assert!(message.contains("run.settle is for one state"), "{message}");
}

#[test]
fn the_sample_is_valid() {
    let scenario = read(GOOD, &[], false).unwrap();
    assert_eq!(scenario.slo(&scenario.workload.services[0].service).to_string(), "200us");
    assert_eq!(scenario.server.cores, 2);
}

#[test]
fn unknown_keys() {
    check("cores = 2", "coers = 2", &[":5:", "server.coers", "unknown key; accepted: cores, batch"]);
    check("title = \"A sample\"", "titel = \"A\"", &[":2:", "titel: unknown key", "title"]);
    check("target = \"80us\"", "targte = \"80us\"", &[":22:", "params.targte", "unknown parameter", "`target`"]);
    check("min = 1", "least = 1", &[":34:", "claim.least", "accepted: id, text"]);
}

#[test]
fn invalid_and_conflicting_replicas() {
    let with = |lines: &str| format!("[replicas]\n{lines}\n\n[network]");
    let refused = |lines: &str, parts: &[&str]| check("[network]", &with(lines), parts);
    refused("first = \"primary\"", &["replicas.servers", "missing", "a number of servers"]);
    refused("servers = 1", &["replicas.servers", "2"]);
    refused("servers = 17", &["replicas.servers", "16"]);
    refused("servers = 2\nfirst = \"random\"", &["replicas.first", "`random` is not one of \"primary\", \"in-turn\""]);
    refused("servers = 2\ngive_up = \"0s\"", &["replicas.give_up", "a duration from 1ns"]);
    refused("servers = 2\nretries = 3", &["replicas.retries", "unknown key; accepted: servers, first, give_up"]);
    let good = GOOD.replacen("[network]", &with("servers = 2\nfirst = \"in-turn\"\ngive_up = \"10us\""), 1);
    let scenario = read(&good, &[], false).unwrap();
    let mean = scenario.workload.services[0].service.mean();
    assert_eq!(scenario.capacity(mean).0, 2.0 * scenario.server.capacity(mean).0);
    assert_eq!(scenario.server_slo(scenario.slo(&scenario.workload.services[0].service)).to_string(), "100us");
    for (setting, why) in [
        ("workload.pacing=1us", "replicas and workload.pacing are not simulated together"),
        ("workload.timeout=1ms", "replicas and workload.timeout are not simulated together"),
        ("workload.clients=600000", "1200000; accepted: up to 1000000"),
        ("server.allocator.policy=delay", "replicas and allocated cores are not simulated together"),
    ] {
        let message = read(&good, &[setting], false).expect_err(setting).to_string();
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn wrong_units() {
    check("warmup = \"1ms\"", "warmup = 1", &[":16:", "run.warmup", "`1` is not a duration", "80us"]);
    check("duration = \"2ms\"", "duration = \"2\"", &[":17:", "run.duration", "a duration from"]);
    check("\"80us\"", "\"80\"", &[":22:", "params.target", "a duration from 1ns"]);
    check("\"exp:10us\"", "\"exp:10\"", &[":11:", "workload.service", "`exp:10us`", "lognormal"]);
    check("\"2x\"", "\"2y\"", &[":13:", "workload.demand", "multiples of capacity", "\"400k\""]);
    check("rtt = \"10us\"", "rtt = true", &[":8:", "network.rtt", "a duration"]);
}

#[test]
fn impossible_values() {
    check("clients = 10", "clients = 0", &[":12:", "workload.clients", "from 1 to 1000000"]);
    check("clients = 10", "clients = 1000001", &[":12:", "from 1 to 1000000"]);
    check("clients = 10", "clients = 1.5", &[":12:", "a whole number"]);
    check("clients = 10", "clients = []", &[":12:", "1 to 1000 entries"]);
    check("clients = 10", "clients = [10, -1]", &[":12:", "`-1` is not a whole number"]);
    check("\"0.5x\"", "\"0x\"", &[":13:", "workload.demand", "above zero"]);
    check("\"0.5x\"", "-4", &[":13:", "`-4` is not a demand above zero"]);
    check("\"0.5x\"", "nan", &[":13:", "above zero"]);
    check("\"exp:10us\"", "\"exp:0us\"", &[":11:", "workload.service"]);
    check("cores = 2", "cores = 0", &[":5:", "server.cores", "from 1 to 128"]);
    check(
        "duration = \"2ms\"",
        "duration = \"1ms\"",
        &[":17:", "run.duration", "nothing to measure", "run.warmup = 1ms"],
    );
    check("seeds = 1", "seeds = 0", &[":18:", "run.seeds", "from 1 to 1000"]);
    check("seeds = 1", "window = \"0us\"", &[":18:", "run.window"]);
    check("\"2ms\"\nseeds = 1", "\"1h\"", &["run.duration", "a duration"]);
    check("\"2ms\"", "\"2s\"\nwindow = \"1us\"", &[":18:", "run.window", "2000000 windows; accepted: up to 100000"]);
    check("\"2x\"", "\"1001M\"", &[":13:", "workload.demand"]);
    check("\"80us\"", "\"5s\"", &[":21:", "controller.name", "`target` (5s) must be below the objective"]);
    check("\"80us\"", "\"80us\", aqm_threshold = \"20us\"", &[":21:", "controller.name", "must not be below"]);
    check("demand = [\"0.5x\", \"2x\"]", "", &["workload.demand", "missing", "[[shift]]"]);
}

#[test]
fn invalid_core_allocation_settings() {
    let server = |rest: &str| format!("cores = 2\n{rest}");
    check("cores = 2", &server("aqm = \"tail\""), &[":6:", "server.aqm", "\"head\", \"arrival\""]);
    let allocator = |rest: &str| server(&format!("allocator = {{ policy = \"delay\", {rest} }}"));
    check("cores = 2", &allocator("revoke = \"busy\""), &[":6:", "server.allocator.revoke", "\"any\", \"idle\""]);
    check("cores = 2", &allocator("steal = 2"), &[":6:", "server.allocator.steal", "\"one\", \"half\""]);
    check("cores = 2", &allocator("start = \"max\""), &[":6:", "server.allocator.start", "\"min\", \"all\""]);
    let rules = allocator("revoke = \"idle\", steal = \"half\", start = \"all\"") + "\naqm = \"arrival\"";
    let read = read(&GOOD.replace("cores = 2", &rules), &[], false).unwrap().server;
    let scheduling = read.scheduling.unwrap();
    assert_eq!((scheduling.revoke, scheduling.steal), (RevokePolicy::Idle, StealAmount::Half));
    assert_eq!((scheduling.start, read.aqm), (InitialCores::All, Aqm::Arrival));
}

#[test]
fn runs_over_the_size_limits() {
    let clients = (1..=26).map(|clients| clients.to_string()).collect::<Vec<_>>().join(",");
    let many = format!("seeds = 1000\n[quick]\nclients = [{clients}]");
    check("seeds = 1", &many, &["workload", "52000 runs", "up to 50000"]);
    let all = "demand = \"900M\"";
    check(
        "demand = [\"0.5x\", \"2x\"]\n\n[run]\nwarmup = \"1ms\"\nduration = \"2ms\"",
        &format!("{all}\n[run]\nduration=\"2s\""),
        &["workload", "too much for one run"],
    );
}

#[test]
fn controllers_plots_and_claims() {
    check("\"breakwater\"", "\"breakwatr\"", &[":21:", "controller.name", "accepted: none, breakwater, dagor"]);
    check("[[plot]]", "[[controller]]\nname = \"breakwater\"\n[[plot]]", &[":25:", "label `breakwater` is in use"]);
    check("y = \"goodput_rps\"", "y = \"goodput\"", &[":27:", "plot.y", "a field of points; accepted:", "goodput_rps"]);
    check("x = \"demand_rps\"", "x = \"service\"", &[":26:", "plot.x", "demand_rps"]);
    check("min = 1", "", &["claim.min", "`min`, `max` or both"]);
    check("min = 1", "min = 2\nmax = 1", &["claim.min", "above max"]);
    check("/ 1000", "/", &[":33:", "claim.measure", "expected a number"]);
    check("goodput_rps{", "goodness{", &[":33:", "claim.measure", "goodput_rps"]);
    check("{breakwater", "{breakwatr", &[":33:", "claim.measure", "labelled `breakwatr`; accepted: breakwater"]);
    check("demand_ratio=2", "demnd=2", &[":33:", "claim.measure", "`demnd` is no field", "demand_ratio"]);
}

#[test]
fn shifts() {
    let shifting = |second: &str| {
        let shift = "[[workload.shift]]\nat = \"0s\"\ndemand = \"10k\"\n[[workload.shift]]\n";
        GOOD.replace("demand = [\"0.5x\", \"2x\"]", &format!("{shift}{second}"))
    };
    let good = shifting("at = \"1ms\"\ndemand = \"2x\"");
    assert!(read(&good, &[], false).unwrap().workload.demand.is_shifting());
    for (second, part) in [
        ("at = \"0s\"\ndemand = \"2x\"", "0ns is not after the shift before it"),
        ("at = \"2ms\"\ndemand = \"2x\"", "not before the run's end"),
        ("at = \"1ms\"", "workload.shift.demand: missing"),
        ("demand = \"2x\"", "workload.shift.at: missing"),
    ] {
        let message = read(&shifting(second), &[], false).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn syntax() {
    check("[server]", "[server", &["sample.toml:4: syntax: not TOML"]);
    check("cores = 2", "cores = 2\ncores = 3", &["sample.toml:6: syntax: not TOML: duplicate key"]);
    check("cores = 2", "cores = 1979-05-27", &["sample.toml:5: server.cores: a date is not a whole number"]);
    check("cores = 2", "cores = 99999999999999999999", &["server.cores", "too large"]);
}

#[test]
fn overrides_are_checked_like_the_file() {
    let good = [
        "workload.clients=200",
        "workload.demand=[1x, 2x, 400k]",
        "run.seeds=1",
        "network.rtt=30us",
        "controller.breakwater.params.target=60us",
        "controller.breakwater.params.beta=1%",
        "claim.ratio.min=0.5",
        "controller.0.label=mine\u{20}too",
    ];
    // A label that a claim names can't be removed.
    let message = read(GOOD, &good, false).unwrap_err().to_string();
    assert!(message.contains("no controller is labelled `breakwater`; accepted: mine too"), "{message}");
    let scenario = read(GOOD, &good[..7], false).unwrap();
    assert_eq!((scenario.workload.clients[0], scenario.run.seeds), (200, 1));
    assert_eq!(scenario.controllers[0].params_for("exp:10us", 200)[0].1.to_string(), "60us");

    for (set, parts) in [
        ("workload.clients=0", ["--set workload.clients=0: workload.clients", "from 1 to 1000000"]),
        ("workload.cleints=3", ["workload.cleints", "unknown key; accepted: service, clients"]),
        ("network.rtt=30", ["network.rtt", "a duration"]),
        ("controller.seda.params.target=60us", ["no such entry of `controller`", "accepted: breakwater"]),
        ("controller.breakwater.params.target=60", ["controller.params.target", "a duration from 1ns"]),
        ("workload.demand=0x", ["workload.demand", "`0x` is not a demand above zero"]),
        ("workload.demand=[0x, 1x]", ["workload.demand", "`0x` is not a demand above zero"]),
        ("workload.demand=1e-300", ["workload.demand", "less than one in 2ms; accepted: at least one in a run"]),
        ("workload.demand=0.00001x", ["workload.demand", "less than one in 2ms"]),
        ("run.seeds=0x", ["run.seeds", "`0x` is not a whole number"]),
        ("run.seeds.x=1", ["run.seeds.x", "no keys within"]),
        ("nonsense", ["--set nonsense", "key=value"]),
        ("=1", ["--set =1", "empty key"]),
        ("run.warmup=5ms", ["sample.toml:17: run.duration", "nothing to measure"]),
    ] {
        let message = read(GOOD, &[set], false).expect_err(set).to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }
}

#[test]
fn a_long_override_names_its_key_and_what_is_accepted() {
    let demands = |count: usize| format!("workload.demand=[{}]", vec!["0.123456789x"; count].join(", "));
    let message = read(GOOD, &[&demands(100_000)], false).unwrap_err().to_string();
    assert!(message.contains("workload.demand: 1400016 bytes; accepted: up to 100000"), "{message}");
    let message = read(GOOD, &[&demands(1_001)], false).unwrap_err().to_string();
    assert!(message.contains("workload.demand: a list of 1001; accepted: 1 to 1000 entries"), "{message}");
    let thousand: Vec<String> = (1..=1_000).map(|step| format!("{}x", 0.5 + f64::from(step) * 1.0e-3)).collect();
    let thousand = format!("workload.demand=[{}]", thousand.join(", "));
    assert!(read(GOOD, &[&thousand, "claim.ratio.measure=goodput_rps{breakwater, demand_ratio=1}"], false).is_ok());
}

#[test]
fn the_quick_section_is_always_checked() {
    let text = format!("{GOOD}\n[quick]\nclients = 0\n");
    let message = read(&text, &[], false).unwrap_err().to_string();
    assert!(message.contains("sample.toml:37: workload.clients"), "{message}");
    let text = format!("{GOOD}\n[quick]\nspeed = 3\n");
    let message = read(&text, &[], false).unwrap_err().to_string();
    assert!(message.contains("quick.speed: unknown key; accepted: seeds, warmup"), "{message}");
    let text = format!("{GOOD}\n[quick]\nclients = 3\ndemand = \"1x\"\n");
    let scenario = read(&text, &["workload.clients=4"], true).unwrap();
    assert_eq!((scenario.workload.clients, scenario.quick), (vec![4], true));
    assert_eq!(read(&text, &[], false).unwrap().workload.clients, [10]);
}

#[test]
fn variants_and_retuning() {
    let text = GOOD.replace(
        "params = { target = \"80us\" }",
        "vary = { target = [\"70us\", \"80us\"], beta = [0.01, 0.02, 0.04] }\n[[controller.tuned]]\nclients = 10\nparams = { alpha = \"1%\" }",
    );
    let text = text.replace("{breakwater, demand_ratio=2}", "{breakwater target=70us beta=0.04, demand_ratio=2}");
    let scenario = read(&text, &[], false).unwrap();
    assert_eq!(scenario.controllers.len(), 6);
    assert_eq!(scenario.controllers[0].label, "breakwater target=70us beta=0.01");
    let names = |clients| -> Vec<String> {
        scenario.controllers[0].params_for("exp:10us", clients).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(10), ["alpha", "target", "beta"]);
    assert_eq!(names(11), ["target", "beta"]);
    let message = read(&text, &["controller.breakwater.params.target=1us"], false).unwrap_err().to_string();
    assert!(message.contains("is in `vary` too"), "{message}");
}

#[test]
fn a_service_from_a_file() {
    let folder = std::env::temp_dir().join(format!("leeward-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("times.txt"), "# measured\n10us\n30us\n").unwrap();
    let path = folder.join("sample.toml");
    std::fs::write(&path, GOOD.replace("exp:10us", "file:times.txt")).unwrap();
    let scenario = Scenario::load(&path, &[], false).unwrap();
    assert_eq!(scenario.workload.services[0].service.mean().to_string(), "20us");
    std::fs::write(folder.join("times.txt"), "10us\nlong\n").unwrap();
    let message = Scenario::load(&path, &[], false).unwrap_err().to_string();
    assert!(message.contains("workload.service") && message.contains("line 2"), "{message}");
    std::fs::remove_dir_all(&folder).unwrap();
    let message = Scenario::load(&path, &[], false).unwrap_err().to_string();
    assert!(message.contains("sample.toml: No such file"), "{message}");
}

#[test]
fn duplicate_list_entries_are_rejected() {
    check(
        "demand = [\"0.5x\", \"2x\"]",
        "demand = [\"2x\", \"0.5x\", \"2.0x\"]",
        &[":HERE:", "`2.0x` is the same as `2x` of the list; accepted: one of them"],
    );
    // 2 cores, 10 us and 1.765 us of costs: 170 k/s.
    check(
        "demand = [\"0.5x\", \"2x\"]",
        "demand = [\"2x\", \"339991.5\"]",
        &[":HERE:", "`339991.5` is the same as `2x` of the list; accepted: one of them"],
    );
    check("clients = 10", "clients = [10, 20, 10]", &["workload.clients", "`10` is in the list twice"]);
    check("\"exp:10us\"", "[\"exp:10us\", \"exp:10us\"]", &["workload.service", "is in the list twice"]);
}

#[test]
fn claims_and_plots_of_unknown_controllers() {
    let labelled = "{label=seda}";
    check(
        "{breakwater, demand_ratio=2}",
        labelled,
        &["claim.measure", "no controller is labelled `seda`", "breakwater"],
    );
    check("{breakwater, demand_ratio=2}", "{controller!=seda}", &["claim.measure", "no controller `seda` runs"]);
    let only = |filter: &str| format!("y = \"goodput_rps\"\nonly = [\"{filter}\"]");
    check("y = \"goodput_rps\"", &only("label=seda"), &["plot.only", "no controller is labelled `seda`"]);
    check("y = \"goodput_rps\"", &only("controller = seda"), &["plot.only", "no controller `seda` runs"]);
    check("y = \"goodput_rps\"", &only("demand_rps=many"), &["plot.only", "demand_rps=850k"]);
    let scenario = read(&GOOD.replace("y = \"goodput_rps\"", &only("demand_rps = 850k")), &[], false).unwrap();
    assert_eq!(scenario.plots[0].only, ["demand_rps=850000"]);
}

#[cfg(unix)]
#[test]
fn endless_files_are_rejected_at_the_size_limit() {
    let error = Scenario::load(Path::new("/dev/zero"), &[], false).unwrap_err().to_string();
    assert!(error.starts_with("/dev/zero: longer than 1 MB"), "{error}");
    let error = read(&GOOD.replace("exp:10us", "file:/dev/zero"), &[], false).unwrap_err().to_string();
    assert!(error.contains("sample.toml:11: workload.service: /dev/zero: larger than 64 MB"), "{error}");
}

#[test]
fn control_characters_are_rejected() {
    check("\"A sample\"", "\"A \\u001b[31msample\"", &[":2:", "title: `A \\u{1b}[31msample` is not one line of text"]);
    check("\"A sample\"", "\"A\\nsample\"", &[":2:", "title", "is not one line"]);
    check("\"A sample\"", "\"\"", &[":2:", "title", "is not one line"]);
    check("text = \"a ratio\"", "text = \"a \\u0007ratio\"", &[":HERE:", "claim.text", "without control characters"]);
    check("title = \"Goodput\"", "title = \"\\u0000\"", &[":HERE:", "plot.title", "is not one line"]);
}

/// Replaces `from` by `to` in the keys of the sample with an application, and expects an error with
/// all `parts`.
fn check_application(from: &str, to: &str, parts: &[&str]) {
    const APPLICATION: &str = r#"p = ["10%", "20%"]
locks = ["a", "b"]

[[workload.path]]
share = "p"
steps = ["work 40%", "lock a", "work 60%", "unlock a"]

[[workload.path]]
share = "1-p"
steps = "work 100%"

[run]"#;
    assert!(from.is_empty() || APPLICATION.contains(from), "{from}");
    let text = GOOD.replace("[run]", &APPLICATION.replacen(from, to, 1));
    if from.is_empty() {
        assert!(read(&text, &[], false).is_ok());
        return;
    }
    let message = read(&text, &[], false).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn impossible_applications() {
    check_application("", "", &[]);
    check_application("lock a\"", "lock c\"", &["path.steps", "`lock c`", "locks: a, b"]);
    check_application("work 60%", "work 50%", &["workload.path", "adds up to 90"]);
    check_application(", \"unlock a\"", "", &["`a` is never released"]);
    check_application("\"work 40%\"", "\"wrok 40%\"", &["path.steps", "`work 30%`"]);
    check_application("\"1-p\"", "\"70%\"", &["add up to 80"]);
    check_application("\"1-p\"", "\"1-q\"", &["path.share", "\"1-p\""]);
    check_application("\"20%\"", "\"120%\"", &["workload.p", "0% to 100%"]);
    check_application("p = [", "r = [", &["workload.p", "missing"]);
    check_application("locks = [\"a\", \"b\"]", "locks = [\"a\", \"a\"]", &["two locks called `a`"]);
    check_application("locks = [\"a\", \"b\"]", "locks = \"a b\"", &["workload.locks", "letters"]);
    check_application("work 100%\"", "work 100%\"\nshift = 1", &["unknown key", "share, steps"]);
}

#[test]
fn locks_need_an_application() {
    let with = |key: &str| GOOD.replace("name = \"breakwater\"", &format!("name = \"breakwater\"\n{key}"));
    let refused = |key: &str, part: &str| {
        let message = read(&with(key), &[], false).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refused("lock = \"spinlock\"", "no [[workload.path]] takes locks");
    refused("lock = \"rwlock\"", "one of \"mutex\", \"spinlock\"");
    refused("acquire = \"unless-congested\"", "\"unless-congested:134us\"");
    refused("acquire = \"timed:2h\"", "\"timed:1ms\"");
    let message = read(&GOOD.replace("clients = 10", "clients = 10\np = \"10%\""), &[], false).unwrap_err().to_string();
    assert!(message.contains("without any [[workload.path]]"), "{message}");
}
