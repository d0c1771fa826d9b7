//! Verdicts over scenarios: both forms, flips against recorded verdicts, and a canary: a planted
//! change of a pool law must flip one.

use leeward_controllers::breakwater;
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::server::{ControlLoop, CoreGrant, Downstream, Gauges, ServerHalves, Signals};
use leeward_core::units::Nanos;
use leeward_lab::results::Verdict;
use leeward_lab::scenario::Scenario;
use leeward_lab::verdicts::{
    Expectations, Extent, PERTURBATIONS, figure_notes, figures, fill_bounds, judge_scenario, markdown, probe,
    scenarios, sensitivity,
};
use leeward_lab::{BuiltinScenario, builtin_scenarios};
use leeward_outcome::sensitivity::Sensitivity;
use leeward_outcome::verdicts::{Gain, ScenarioVerdicts, Verdicts};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A small scenario whose claims depend on Breakwater's pool law.
const SMALL: BuiltinScenario = BuiltinScenario {
    id: "small",
    text: r#"
id = "small"
title = "A canary's cage"
source = "Breakwater (OSDI'20) §5.2"
[workload]
service = "exp:10us"
clients = 200
demand = "2x"
[run]
warmup = "200ms"
duration = "300ms"
[[controller]]
name = "breakwater"
params = { aqm = "off" }
[[controller]]
name = "none"
[[plot]]
title = "Goodput"
x = "demand_rps"
y = "goodput_rps"
[[claim]]
id = "in-time"
text = "Goodput over capacity"
paper = "near the capacity"
measure = "goodput_rps{breakwater} / capacity_rps{breakwater}"
unit = "x"
min = 0.8
[[claim]]
id = "over-none"
text = "Goodput over that without control"
paper = "a multiple"
measure = "goodput_rps{breakwater} / goodput_rps{none}"
unit = "x"
min = 10
"#,
};

/// A verdict takes more seeds than a scenario's file asks for.
#[test]
fn every_scenario_accepts_the_number_of_seeds_of_a_verdict() {
    let seeds = ["run.seeds=10".to_string()];
    for builtin in builtin_scenarios() {
        for quick in [true, false] {
            let parse = |overrides: &[String]| {
                Scenario::parse(builtin.id, builtin.text, Path::new(""), overrides, quick, &leeward_lab::registry())
                    .unwrap_or_else(|error| panic!("{error}"))
            };
            let scenario = parse(&seeds);
            parse(&[seeds.as_slice(), &scenario.published].concat());
        }
    }
}

/// Claims of µTune are judged on its authors' machine, in every scenario that reproduces one of its
/// figures.
#[test]
fn every_claim_of_utune_is_judged_on_its_machine() {
    let of_paper = |builtin: &&BuiltinScenario| {
        let scenario = Scenario::builtin(builtin.id, &[], true).unwrap_or_else(|error| panic!("{error}"));
        scenario.source.starts_with("µTune").then_some(scenario).map(|scenario| (builtin.id, scenario.published))
    };
    let judged: Vec<_> = builtin_scenarios().iter().filter_map(|builtin| of_paper(&builtin)).collect();
    assert!(judged.len() >= 14, "{judged:?}");
    for (id, published) in judged {
        assert_eq!(published, ["server.threads.preset=utune"], "{id}");
    }
}

fn extent(seeds: u32) -> Extent {
    Extent { seeds, seed: 101, quick: false, overrides: Vec::new(), threads: Some(2) }
}

fn judge(builtin: &BuiltinScenario, registry: &Registry, seeds: u32) -> ScenarioVerdicts {
    judge_scenario(builtin, &extent(seeds), registry, &|_| {}, &AtomicBool::new(false)).unwrap()
}

/// A slow half that never sees a delay: its pool always grows.
struct BlindControl(Box<dyn ControlLoop>);

impl ControlLoop for BlindControl {
    fn period(&self) -> Nanos {
        self.0.period()
    }
    fn tick(&mut self, signals: &Signals) {
        self.0.tick(&Signals { packet_delay: Nanos::ZERO, run_delay: Nanos::ZERO, ..*signals });
    }
    fn on_core_grant(&mut self, event: &CoreGrant) {
        self.0.on_core_grant(event);
    }
    fn set_downstream(&mut self, event: &Downstream) {
        self.0.set_downstream(event);
    }
    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }
}

/// All algorithms, with a planted change of Breakwater's pool law.
fn registry_with_defect() -> Registry {
    let mut registry = leeward_controllers::builtin();
    registry.replace(Algorithm {
        build_server: |params, environment| {
            let ServerHalves { cores, control } = (breakwater::ALGORITHM.build_server)(params, environment)?;
            Ok(ServerHalves { cores, control: Box::new(BlindControl(control)) })
        },
        ..breakwater::ALGORITHM
    });
    registry
}

/// A paper's claim is judged on the paper's machine if the scenario names it, beside the result on
/// the scenario's own machine.
#[test]
fn claims_are_judged_on_the_papers_machine_if_given() {
    let text = SMALL.text.replace("[run]", "[published]\nset = [\"server.costs.send=20us\"]\n[run]");
    let builtin = BuiltinScenario { text: Box::leak(text.into_boxed_str()), ..SMALL };
    let (judged, plain) =
        (judge(&builtin, &leeward_controllers::builtin(), 1), judge(&SMALL, &leeward_controllers::builtin(), 1));
    assert_eq!((judged.machine.as_str(), judged.gains.len()), ("server.costs.send=20us", 0));
    let (claim, own) = (&judged.claims[0], &plain.claims[0]);
    assert_eq!(claim.extended.measured, own.extended.measured, "the scenario's own machine is as before");
    assert_ne!(claim.published.measured, own.published.measured);
    let page = markdown(&Verdicts { command: "leeward verdicts".into(), scenarios: vec![judged] });
    assert!(page.contains("with the values that the paper reports (`server.costs.send=20us`)"), "{page}");
    assert!(
        page.contains("on the scenario's own machine |") && page.contains("depend on the machine: `in-time`"),
        "{page}"
    );
}

/// Capacity depends only on the costs: it differs in the worlds that change a cost, and in no
/// other.
#[test]
fn a_claim_flips_only_under_perturbations_that_affect_it() {
    let claim = "[[claim]]\nid = \"capacity\"\ntext = \"Capacity\"\npaper = \"850k\"\nmeasure = \"capacity_rps{none} / 1000\"\nmin = 848\nmax = 852\n";
    let text = SMALL.text.replace("200ms", "1ms").replace("300ms", "3ms");
    let text = text.split("[[claim]]").next().unwrap().to_string() + claim;
    let builtin = BuiltinScenario { text: Box::leak(text.into_boxed_str()), ..SMALL };
    let never = AtomicBool::new(false);
    let probe = || probe(&builtin, &|_| true, &extent(2), &leeward_controllers::builtin(), &|_, _| {}, &never).unwrap();
    let probed = probe();
    assert_eq!(probed, probe(), "the same seeds, the same verdicts");
    let claim = &probed.claims[0];
    assert_eq!((claim.own.verdict, claim.own.measured.as_str()), (Verdict::Reproduced, "850 (850–850)"));
    let flips: Vec<&str> = PERTURBATIONS
        .iter()
        .zip(&claim.others)
        .filter(|(_, other)| other.as_ref().is_some_and(|other| other.verdict == Verdict::NotReproduced))
        .map(|(world, _)| world.name)
        .collect();
    let expected = ["receiving", "receiving", "creating a task", "creating a task", "sending", "sending"];
    assert!(flips.len() == 6 && flips.iter().zip(expected).all(|(flip, cost)| flip.starts_with(cost)), "{flips:?}");
    let mut all = Sensitivity { command: "leeward verdicts --sensitivity".into(), scenarios: vec![probed] };
    let page = sensitivity(&all);
    assert!(page.contains("| w8 | sending costs twice | 1 | 1 | 0 |"), "{page}");
    assert!(
        page.contains("| `capacity` | reproduced | = | = | **no** | **no** | **no** | **no** | **no** | **no** | = |"),
        "{page}"
    );
    assert!(page.contains("| `small capacity` | 850 (850–850): reproduced | w3: "), "{page}");
    // An earlier file may have the worlds in another order.
    all.scenarios[0].worlds.reverse();
    all.scenarios[0].claims[0].others.reverse();
    assert_eq!(sensitivity(&all), page);
}

#[test]
fn stored_claims_get_bounds_and_the_table_shows_gains_by_additions() {
    let data = std::fs::read_to_string(docs().join("verdicts.json")).unwrap();
    let mut verdicts: Verdicts = serde_json::from_str(&data).unwrap();
    verdicts.scenarios.retain(|judged| judged.id == "bw-aggressiveness");
    let judged = &mut verdicts.scenarios[0];
    judged.claims.iter_mut().for_each(|claim| claim.bounds = Default::default());
    let gain = |label: &str, extended_rps| Gain {
        label: label.into(),
        demand_rps: 1e6,
        published_rps: if label == "none" { 0.0 } else { 100.0 },
        extended_rps,
        published_p99_us: 1.0,
        extended_p99_us: 1.0,
    };
    judged.gains = vec![gain("a", 110.0), gain("b", 95.0), gain("c", 100.5), gain("none", 5.0)];
    fill_bounds(&mut verdicts);
    let bounds = verdicts.scenarios[0].claims[0].bounds;
    assert_eq!((bounds.number, bounds.min, bounds.max), (Some(0.7), Some(0.35), Some(1.05)));
    let page = markdown(&verdicts);
    let help = "in 2 of 4 rows: `bw-aggressiveness` none (from nothing), `bw-aggressiveness` a (+10.0 %)";
    assert!(page.contains(help), "{page}");
    assert!(page.contains("as much in 1: `bw-aggressiveness` b (-5.0 %)"), "{page}");
    assert!(page.contains("not run yet `bw-motivation`, "), "{page}");
}

/// A panel has our curves, with intervals, at each of its scenario's points.
#[test]
fn a_scenario_with_a_panel_is_judged_with_its_curves() {
    let known = scenarios(&["ca-collapse".into()])[0];
    let smaller = ["run.duration=11ms", "server.cores=8", "network.rtt=[5us, 20us, 60us]"].map(String::from);
    let extent = Extent { quick: true, overrides: smaller.into(), ..extent(2) };
    let judged =
        judge_scenario(known, &extent, &leeward_controllers::builtin(), &|_| {}, &AtomicBool::new(false)).unwrap();
    let [panel] = judged.panels.as_slice() else { panic!("{:?}", judged.panels) };
    assert_eq!(panel.curves.iter().map(|curve| curve.label.as_str()).collect::<Vec<_>>().len(), 3);
    for curve in &panel.curves {
        assert_eq!(curve.samples.len(), 3, "{}: a sample per round trip", curve.label);
        assert!(curve.samples.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert!(curve.samples.iter().all(|sample| sample.low <= sample.median && sample.median <= sample.high));
    }
}

#[test]
fn every_figure_is_drawn_or_has_a_reason() {
    let notes = figure_notes();
    assert_eq!(notes.len(), figures().len());
    let drawn: Vec<&str> =
        notes.iter().filter(|note| note.reason.is_empty()).map(|note| note.figure.as_str()).collect();
    for figure in ["Breakwater, Fig. 3", "Thesis, Fig. 2.7", "Hoover, Fig. 10", "Poster, Fig. 2", "µTune, Fig. 11"] {
        assert!(drawn.contains(&figure), "{figure}: {drawn:?}");
    }
    assert!(!drawn.contains(&"Breakwater, Fig. 4"), "its text gives gains alone");
}

#[test]
fn a_defective_pool_law_flips_a_verdict() {
    let before = judge(&SMALL, &leeward_controllers::builtin(), 3);
    assert!(before.claims.iter().all(|claim| claim.verdict() == Verdict::Reproduced), "{:?}", before.claims);
    let written = Expectations::from_verdicts(std::slice::from_ref(&before), &extent(3));
    let again = judge(&SMALL, &leeward_controllers::builtin(), 3);
    assert_eq!(written.flips(&Expectations::from_verdicts(&[again], &extent(3))), Vec::<String>::new());
    let flips = written.flips(&Expectations::from_verdicts(&[judge(&SMALL, &registry_with_defect(), 3)], &extent(3)));
    assert!(flips.iter().any(|flip| flip.starts_with("small in-time: was reproduced")), "{flips:?}");
}

/// Nothing is in time without control: the ratio is infinite for every seed, and counts.
#[test]
fn infinite_ratios_are_judged() {
    let judged = judge(&SMALL, &leeward_controllers::builtin(), 3);
    let claim = judged.claims.iter().find(|claim| claim.published.id == "over-none").unwrap();
    assert_eq!((claim.verdict(), claim.published.value), (Verdict::Reproduced, None), "{claim:?}");
    assert_eq!(claim.published.measured, "∞x (∞–∞)");
}

#[test]
fn expectations_are_read_as_they_are_written() {
    let judged = judge(&SMALL, &leeward_controllers::builtin(), 2);
    let written =
        Expectations::from_verdicts(&[judged], &Extent { overrides: vec!["run.window=1ms".into()], ..extent(2) });
    assert_eq!(Expectations::parse(&written.text()).unwrap(), written);
    let now = Expectations::parse("seeds 2\nseed 101\nscenario small\n").unwrap();
    assert_eq!(written.flips(&now).len(), 2, "claims that are gone");
    assert_eq!(now.flips(&written).len(), 2, "claims that are new");
    let wrong = [
        "claim a b c",
        "seeds many",
        "seeds 0",
        "colour red",
        "nothing",
        "",
        "seeds 2\nseed 1",
        "scenario a\nscenario a",
    ];
    for wrong in wrong.into_iter().chain(["scenario a\nclaim b c reproduced reproduced"]) {
        assert!(Expectations::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_scenario_of_a_figure_exists_and_every_figure_has_a_reason_or_a_scenario() {
    for figure in figures() {
        assert_ne!(figure.scenarios.is_empty(), figure.reason.is_empty(), "{figure:?}");
        for id in figure.scenarios {
            assert!(builtin_scenarios().iter().any(|known| known.id == *id), "{figure:?}");
        }
    }
}

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The page matches its data, and its data has today's claims.
#[test]
fn the_table_of_verdicts_is_up_to_date() {
    let data = std::fs::read_to_string(docs().join("verdicts.json")).unwrap();
    let verdicts: Verdicts = serde_json::from_str(&data).unwrap();
    let page = std::fs::read_to_string(docs().join("verdicts.md")).unwrap();
    assert!(page == markdown(&verdicts), "docs/verdicts.md is not what `leeward verdicts` makes of docs/verdicts.json");
    for judged in &verdicts.scenarios {
        let scenario = leeward_lab::Scenario::builtin(&judged.id, &[], false).unwrap();
        let today: Vec<&str> = scenario.claims.iter().map(|claim| claim.id.as_str()).collect();
        let then: Vec<&str> = judged.claims.iter().map(|claim| claim.published.id.as_str()).collect();
        assert_eq!(today, then, "{}: `leeward verdicts --scenario {}` judges its claims anew", judged.id, judged.id);
    }
}

/// The page of the worlds matches its data, and its columns are today's worlds.
#[test]
fn the_table_of_perturbations_is_up_to_date() {
    let data = std::fs::read_to_string(docs().join("sensitivity.json")).unwrap();
    let kept: Sensitivity = serde_json::from_str(&data).unwrap();
    let page = std::fs::read_to_string(docs().join("sensitivity.md")).unwrap();
    assert!(page == sensitivity(&kept), "docs/sensitivity.md is not made of docs/sensitivity.json");
    let today: Vec<&str> = PERTURBATIONS.iter().map(|world| world.name).collect();
    for probed in &kept.scenarios {
        assert_eq!(probed.worlds, today, "{}: `leeward verdicts --sensitivity` judges it anew", probed.id);
        assert!(probed.claims.iter().all(|claim| claim.others.len() == today.len()), "{}", probed.id);
    }
}

/// A tolerance is never wider than half of the paper's effect, and has two sides.
#[test]
fn tolerances_follow_from_the_papers_numbers() {
    let text = |claim: &str| {
        SMALL
            .text
            .replace("measure = \"goodput_rps{breakwater} / capacity_rps{breakwater}\"\nunit = \"x\"\nmin = 0.8", claim)
    };
    let read = |claim: &str| {
        leeward_lab::Scenario::parse(
            "small.toml",
            &text(claim),
            Path::new(""),
            &[],
            false,
            &leeward_controllers::builtin(),
        )
    };
    let measure = "measure = \"goodput_rps{breakwater}\"\n";
    let bounds = |claim: &str| {
        let scenario = read(&format!("{measure}{claim}")).unwrap();
        (scenario.claims[0].min.unwrap(), scenario.claims[0].max.unwrap())
    };
    let near = |(min, max): (f64, f64), (low, high): (f64, f64)| (min - low).abs() < 1e-9 && (max - high).abs() < 1e-9;
    assert!(near(bounds("unit = \"x\"\nnumber = 1.06"), (1.03, 1.09)));
    assert!(near(bounds("unit = \"x\"\nnumber = 0.8"), (0.7, 0.9)));
    assert!(near(bounds("unit = \"ms\"\nnumber = 500"), (250.0, 750.0)));
    assert!(near(bounds("unit = \"k/s\"\nnumber = 801\nneutral = 850"), (776.5, 825.5)));
    for wrong in ["number = 2\nmin = 1", "number = 1\nunit = \"x\"", "neutral = 1\nmin = 2", "ours = 3\nmin = 1"] {
        assert!(read(&format!("{measure}{wrong}")).is_err(), "{wrong}");
    }
}

/// Scenarios with a rival both tuned and as its authors had it, with the rival's two labels.
const TUNED_AND_NOT: [(&str, &str, &str); 7] = [
    ("bw-overall", "dagor tuned", "dagor"),
    ("bw-overall", "seda tuned", "seda"),
    ("bw-service-time", "dagor tuned", "dagor"),
    ("bw-service-time", "seda tuned", "seda"),
    ("bw-clients", "seda", "seda fixed"),
    ("lk-trylock", "seda tuned", "seda"),
    ("lk-two-mutex", "seda tuned", "seda"),
];

#[test]
fn a_tuned_rival_is_held_against_the_untuned_one() {
    for (id, tuned, untuned) in TUNED_AND_NOT {
        let scenario = Scenario::builtin(id, &[], false).unwrap();
        let sanity = scenario.claims.iter().filter(|claim| claim.id.starts_with("sanity-"));
        let mut sanity = sanity.filter(|claim| claim.measure.labels() == [tuned, untuned]).peekable();
        assert!(sanity.peek().is_some(), "{id}: {tuned}");
        for claim in sanity {
            assert!(claim.ours && claim.min == Some(0.98) && claim.max.is_none(), "{id} {}", claim.id);
        }
    }
}
