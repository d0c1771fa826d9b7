//! Scenarios settle under one rule, quick and in full; a warm-up that is too short shows.

use leeward_lab::results::{Results, Verdict};
use leeward_lab::run::{Options, run};
use leeward_lab::{Scenario, builtin_scenarios};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Scenarios whose runs have fixed times: the demand or the machine changes at stated times, they
/// draw time series, or they are made for the real plant.
const FIXED: [&str; 21] = [
    "bw-shift",
    "bw-today-shift",
    "ca-collapse",
    "ca-ramp",
    "edge-burst",
    "edge-shift",
    "hidden-downstream",
    "lk-memcached-usr",
    "lk-memcached-var",
    "lk-search",
    "mt-flash",
    "mt-flash-async",
    "mt-lockin",
    "mt-nine",
    "mt-switch",
    "mt-twin",
    "real-disk",
    "real-grid",
    "real-mismatch",
    "real-overall",
    "real-spike",
];

#[test]
fn quick_runs_are_the_same_experiment() {
    for builtin in builtin_scenarios() {
        let (full, quick) =
            (Scenario::builtin(builtin.id, &[], false).unwrap(), Scenario::builtin(builtin.id, &[], true).unwrap());
        assert_eq!(full.run.settle.is_none(), FIXED.contains(&builtin.id), "{}", builtin.id);
        assert_eq!(full.run.settle, quick.run.settle, "{}", builtin.id);
        if full.run.settle.is_some() {
            assert_eq!((full.run.warmup, full.run.duration), (quick.run.warmup, quick.run.duration), "{}", builtin.id);
            assert!(full.run.precision < quick.run.precision, "{}", builtin.id);
        }
        assert_eq!(full.controllers, quick.controllers, "{}", builtin.id);
        assert_eq!(full.kinds, quick.kinds, "{}", builtin.id);
    }
}

/// SEDA's clients begin with a burst and need seconds to rise to their share.
fn seda(run_section: &str) -> Results {
    let text = format!(
        r#"
id = "rise"
title = "Rise"
[workload]
service = "exp:100us"
clients = 1000
demand = ["2x"]
[run]
{run_section}
seeds = 1
[[controller]]
name = "seda"
[[controller]]
name = "dagor"
[[claim]]
id = "more"
text = "DAGOR has more"
paper = "yes"
measure = "goodput_rps{{dagor}} / goodput_rps{{seda}}"
min = 1
"#
    );
    run_text(&text)
}

#[test]
fn a_rival_with_a_short_warm_up_did_not_settle() {
    for cut in ["warmup = \"2s\"\nduration = \"2300ms\"", "settle = \"1500ms\""] {
        let results = seda(cut);
        let settled: Vec<Option<bool>> = results.points.iter().map(|point| point.settled).collect();
        assert_eq!(settled[0], Some(false), "{cut}: {:?}", results.points);
        let claim = &results.claims[0];
        assert_eq!(claim.verdict, Verdict::Undecided, "{cut}: {claim:?}");
        let seda = claim.settling.iter().find(|side| side.label == "seda");
        assert!(seda.is_some_and(|side| !side.settled), "{cut}: {claim:?}");
    }
}

fn run_text(text: &str) -> Results {
    let registry = leeward_lab::registry();
    let scenario = Scenario::parse("own.toml", text, Path::new(""), &[], false, &registry).unwrap();
    run(&scenario, &registry, &Options::default(), &|_| {}, &AtomicBool::new(false)).unwrap()
}

/// Its runs last as long as they take: the best is the one with most goodput per second.
#[test]
fn the_oracle_is_no_worse_than_a_controller_where_runs_settle() {
    let results = run_text(
        r#"
id = "bound"
title = "Bound"
[workload]
service = "exp:10us"
clients = 100
demand = ["1.2x"]
[run]
settle = "10s"
precision = 0.03
seeds = 1
[[controller]]
name = "oracle"
[[controller]]
name = "breakwater"
"#,
    );
    let goodput: Vec<f64> = results.points.iter().map(|point| point.goodput_rps).collect();
    assert!(goodput[0] > 0.97 * goodput[1], "{goodput:?}");
}

/// Nobody gets a response: the 99th percentile is no number, and nothing has settled.
#[test]
fn a_latency_without_responses_decides_no_claim() {
    let results = run_text(
        r#"
id = "silence"
title = "Silence"
[workload]
service = "const:100us"
clients = 100
demand = ["2x"]
timeout = "50us"
[run]
warmup = "100ms"
duration = "300ms"
seeds = 1
[[controller]]
name = "none"
[[controller]]
name = "breakwater"
[[claim]]
id = "quick"
text = "None is quick"
paper = "yes"
measure = "p99_us{none} / p99_us{breakwater}"
max = 0.5
"#,
    );
    assert_eq!((results.points[0].p99_us, results.points[0].settled), (0.0, Some(false)));
    assert_eq!(results.claims[0].verdict, Verdict::NotApplicable);
}

fn run_bursts(arrivals: &str, settle: &str, seeds: u32) -> Results {
    run_text(&format!(
        r#"
id = "bursts"
title = "Bursts"
[server]
cores = 1
[workload]
service = "const:100us"
clients = 10
demand = ["0.4x"]
arrivals = "{arrivals}"
[run]
settle = "{settle}"
precision = 0.1
seeds = {seeds}
[[controller]]
name = "none"
"#
    ))
}

/// A span is most of such a run, and looks steady.
#[test]
fn a_run_of_few_bursts_has_not_settled() {
    for seed in run_bursts("bursts:2:1s", "2s", 3).points {
        assert_eq!(seed.settled, Some(false), "{seed:?}");
    }
}

#[test]
fn the_mean_over_bursts_is_as_precise_as_asked_for() {
    for seed in run_bursts("bursts:2:5ms", "20s", 5).points {
        assert_eq!(seed.settled, Some(true), "{seed:?}");
        let ratio = seed.goodput_rps / seed.workload.demand_rps;
        assert!((ratio - 1.0).abs() < 0.15, "{ratio} of the demand: {seed:?}");
    }
}

/// Half of the capacity, but less than one answer in the time before the first decision.
#[test]
fn a_run_without_an_answer_has_not_settled() {
    let results = run_text(
        r#"
id = "seldom"
title = "Seldom"
[workload]
service = "exp:60s"
clients = 2
demand = ["0.5x"]
[run]
settle = "20s"
seeds = 1
[[controller]]
name = "breakwater"
[[controller]]
name = "dagor"
"#,
    );
    for point in &results.points {
        assert_eq!((point.throughput_rps, point.settled), (0.0, Some(false)), "{point:?}");
    }
}
