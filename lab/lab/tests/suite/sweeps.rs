//! Sweeps: the order of their cells, their errors, and that a cell equals a run of the program.

use leeward_lab::run::{Options, run};
use leeward_lab::scenario::Scenario;
use leeward_lab::sweep::{Axis, Grid, SweepError, run_cells, select, with_controllers};
use std::sync::atomic::AtomicBool;

const SHORT: [&str; 3] = ["workload.clients=20", "run.duration=4ms", "run.warmup=1ms"];

fn base() -> Vec<String> {
    SHORT.iter().map(|text| text.to_string()).collect()
}

fn grid(axes: &[&str], seeds: u32) -> Grid {
    Grid::new(axes.iter().map(|text| Axis::parse(text).unwrap()).collect(), seeds, 1).unwrap()
}

fn load(overrides: &[String]) -> Result<Scenario, leeward_lab::ScenarioError> {
    Scenario::builtin("bw-overall", overrides, true)
}

#[test]
fn cells_are_counted_with_the_seed_fastest_and_the_first_axis_slowest() {
    let grid = grid(&["controller=seda,dagor", "demand=0.8x,2x"], 3);
    assert_eq!(grid.cells(), 12);
    let values_of = |index: usize| {
        let cell = grid.cell(index);
        (cell.label().unwrap().to_string(), cell.values[1].1.to_string(), cell.seed)
    };
    assert_eq!(values_of(0), ("seda".into(), "0.8x".into(), 1));
    assert_eq!(values_of(2), ("seda".into(), "0.8x".into(), 3));
    assert_eq!(values_of(3), ("seda".into(), "2x".into(), 1));
    assert_eq!(values_of(11), ("dagor".into(), "2x".into(), 3));
    assert_eq!(grid.cell(11).overrides(&["a=b".into()]), ["a=b", "workload.demand=2x", "run.seeds=1"]);
}

#[test]
fn a_sweep_cell_equals_the_run_of_its_scenario() {
    let grid = grid(&["controller=seda,codel", "demand=0.8x,2x"], 2);
    let registry = leeward_controllers::builtin();
    let text = with_controllers(include_str!("../../../../experiments/bw-overall.toml"), ["codel"]);
    let scenario = |overrides: &[String]| {
        Scenario::parse("bw-overall.toml", &text, std::path::Path::new(""), overrides, true, &registry)
    };
    let cancel = AtomicBool::new(false);
    let mut points = Vec::new();
    // In two parts, like two workers.
    for range in [0..3, 3..grid.cells()] {
        run_cells(&grid, range, &base(), &registry, scenario, &cancel, |_, results| points.extend(results.points))
            .unwrap();
    }
    let all = base().into_iter().chain(["workload.demand=[0.8x, 2x]".into(), "run.seeds=2".into()]);
    let mut whole = scenario(&all.collect::<Vec<_>>()).unwrap();
    whole.controllers.retain(|variant| ["seda", "codel"].contains(&variant.label.as_str()));
    let results = run(&whole, &registry, &Options::default(), &|_| {}, &cancel).unwrap();
    assert_eq!(points, results.points);
}

#[test]
fn invalid_grids_are_rejected() {
    let refused = |axes: &[&str]| {
        let axes: Result<Vec<Axis>, SweepError> = axes.iter().map(|text| Axis::parse(text)).collect();
        axes.and_then(|axes| Grid::new(axes, 1, 1)).unwrap_err().to_string()
    };
    for (axes, part) in [
        (&["demand"][..], "accepted: KEY=VALUE"),
        (&["=1x"], "accepted: KEY=VALUE"),
        (&["demand=1x,,2x"], "accepted: KEY=VALUE"),
        (&["demand=1x", "workload.demand=2x"], "swept twice"),
        (&["demand=1x,1x"], "is there twice"),
    ] {
        assert!(refused(axes).contains(part), "{}", refused(axes));
    }
    let mut scenario = load(&[]).unwrap();
    let message = select(&mut scenario, "sedum").unwrap_err().to_string();
    assert!(message.contains("`sedum`") && message.contains("seda"), "{message}");
    // Every value is checked before anything runs, in whichever place of the grid.
    for (axes, part) in [
        (&["demand=0.8x,1x,zzz", "clients=10,20"][..], "zzz"),
        (&["demand=0.8x,1x", "clients=10,20,foo"], "foo"),
        (&["controller=seda,nope", "clients=10,20"], "`nope`"),
        (&["clients=10,20", "controller=seda,dagor,nope"], "`nope`"),
    ] {
        let message = grid(axes, 2).check(&[], load).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    grid(&["controller=seda,dagor", "demand=0.8x,2x", "clients=10"], 3).check(&base(), load).unwrap();
    let wrong = grid(&["rtt=30"], 1);
    let error = run_cells(&wrong, 0..1, &[], &leeward_controllers::builtin(), load, &AtomicBool::new(false), |_, _| {});
    assert!(error.unwrap_err().to_string().contains("--set network.rtt=30: network.rtt: `30` is not a duration"));
}
