//! Made-up results in the shape of real ones: an overall comparison, and a run with shifting
//! demand.

use leeward_outcome::results::{Claim, Plot, PointRow, Results, RunKey, ShiftRow, Verdict, WindowRow, WorkloadKey};

/// Model of a controller: goodput, p99 and drop rate at a demand relative to the capacity.
type Model = fn(f64) -> (f64, f64, f64);

const MODELS: [(&str, Model); 4] = [
    (
        "none",
        |ratio| if ratio < 1.0 { (ratio, 30.0 + 60.0 * ratio / (1.02 - ratio), 0.0) } else { (0.01, 9e5 * ratio, 0.0) },
    ),
    ("breakwater", |ratio| (ratio.min(0.95), 30.0 + 130.0 * ratio.min(1.1), (ratio - 1.0).max(0.0) * 0.02)),
    ("dagor", |ratio| (ratio.min(0.93 - 0.02 * ratio), 28.0 + 175.0 * ratio, (ratio - 1.0).max(0.0) * 0.4)),
    ("seda", |ratio| (ratio.min(0.92 - 0.013 * ratio), 34.0 + 140.0 * ratio.min(1.2), (ratio - 1.0).max(0.0) * 0.01)),
];

/// A reproducible difference between seeds.
fn jitter(seed: u64, step: usize) -> f64 {
    let mixed = (seed * 7919 + step as u64 * 104_729) % 1000;
    1.0 + (mixed as f64 / 1000.0 - 0.5) * 0.03
}

fn plot(title: &str, table: &str, axes: (&str, &str), kind: &str) -> Plot {
    Plot {
        title: title.into(),
        table: table.into(),
        x: axes.0.into(),
        y: axes.1.into(),
        series: "label".into(),
        only: vec![],
        x_scale: "linear".into(),
        y_scale: if axes.1.ends_with("_us") { "log".into() } else { "linear".into() },
        kind: kind.into(),
    }
}

fn claim(id: &str, text: &str, numbers: [&str; 3], verdict: Verdict, note: &str) -> Claim {
    Claim {
        id: id.into(),
        text: text.into(),
        paper: numbers[0].into(),
        interval: None,
        measured: numbers[1].into(),
        value: None,
        accepted: numbers[2].into(),
        verdict,
        note: note.into(),
        settling: Vec::new(),
        late: Vec::new(),
    }
}

/// Goodput, p99 and drops of four controllers against demand, with three seeds each.
pub(crate) fn overall() -> Results {
    let mut points = Vec::new();
    for (name, model) in MODELS {
        for step in 1..=20_usize {
            for seed in 1..=3 {
                let ratio = step as f64 / 10.0;
                let (goodput, p99, drops) = model(ratio);
                let noise = jitter(seed, step);
                points.push(PointRow {
                    run: RunKey::new(name, name, seed),
                    workload: WorkloadKey {
                        demand_rps: ratio * 850e3,
                        demand_ratio: ratio,
                        clients: 1000,
                        service: "exp 10us".into(),
                        ..WorkloadKey::default()
                    },
                    service_mean_us: 10.0,
                    capacity_rps: 850e3,
                    slo_us: 200.0,
                    throughput_rps: ratio.min(1.0) * 850e3 * noise,
                    goodput_rps: goodput * 850e3 * noise,
                    p50_us: p99 / 4.0,
                    p99_us: p99 * noise * noise,
                    p999_us: p99 * 1.6,
                    mean_us: p99 / 3.0,
                    drop_rate: drops * noise,
                    cpu_utilization: ratio.min(1.0),
                    rx_per_request: 1.1,
                    tx_per_request: 1.2,
                    offered: (ratio * 1.7e6) as u64,
                    ..PointRow::default()
                });
            }
        }
    }
    let mut bars = plot("Goodput at a few loads", "points", ("demand_ratio", "goodput_rps"), "bars");
    bars.only = vec!["seed=1".into()];
    let plots = vec![
        plot("Goodput", "points", ("demand_rps", "goodput_rps"), "line"),
        plot("Tail latency", "points", ("demand_rps", "p99_us"), "line"),
        plot("Drop rate", "points", ("demand_rps", "drop_rate"), "line"),
        plot("Latency against goodput", "points", ("goodput_rps", "p99_us"), "scatter"),
        Plot {
            only: vec!["demand_ratio=2".into()],
            x: "label".into(),
            ..plot("Goodput at twice the capacity", "points", ("label", "goodput_rps"), "bars")
        },
        Plot { table: "points".into(), x: "demand_ratio".into(), ..bars },
        plot("Nothing to see", "points", ("no_such_field", "goodput_rps"), "line"),
    ];
    Results {
        schema: 1,
        scenario: "bw-overall".into(),
        title: "Goodput, tail latency and drops as demand grows to twice the capacity".into(),
        source: "Breakwater (OSDI 2020), figure 5".into(),
        plant: "sim".into(),
        seed: 1,
        quick: true,
        overrides: vec!["run.duration=\"2s\"".into(), "clients=1000".into()],
        plots,
        points,
        claims: vec![
            claim(
                "goodput",
                "At twice the capacity Breakwater's goodput is above SEDA's.",
                ["+5.7 %", "+6.1 % (5.8–6.4)", "at least +4 %"],
                Verdict::Reproduced,
                "",
            ),
            claim(
                "p99",
                "At twice the capacity its p99 is lower than DAGOR's.",
                ["1.9 ×", "1.3 × (1.3–1.4)", "at least 1.5 ×"],
                Verdict::NotReproduced,
                "Our DAGOR answers sooner: its feedback rides on every response here, where the paper's waits for the next window.",
            ),
            claim(
                "seda",
                "Below capacity SEDA's p99 is higher.",
                ["15 % at 700 k/s", "not measured: no point at 700 k/s in a quick run", "5 % to 30 %"],
                Verdict::NotApplicable,
                "",
            ),
        ],
        ..Results::default()
    }
}

/// A time series: demand rises to 1.4 times the capacity in steps and falls back.
pub(crate) fn shift() -> Results {
    let levels = [(2.0, 400e3), (4.0, 800e3), (6.0, 1200e3), (8.0, 800e3), (10.0, 400e3)];
    let (mut windows, mut shifts, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for (name, model) in &MODELS[1..] {
        for seed in 1..=3 {
            for step in 0..500_usize {
                let start = step as f64 / 50.0;
                let demand = levels.iter().find(|(end, _)| start < *end).map_or(400e3, |level| level.1);
                let (goodput, p99, drops) = model(demand / 850e3);
                let elapsed = (start - 4.0).max(0.0);
                let degradation =
                    if *name != "breakwater" && elapsed > 0.0 && elapsed < 0.5 { 1.0 - elapsed } else { 0.0 };
                windows.push(WindowRow {
                    run: RunKey::new(name, name, seed),
                    start_s: start,
                    length_ms: 20.0,
                    demand_rps: demand,
                    goodput_rps: goodput * 850e3 * jitter(seed, step) * (1.0 - 0.8 * degradation),
                    p99_us: p99 * jitter(seed, step) * (1.0 + 900.0 * degradation * degradation),
                    drops_rps: drops * demand,
                    ..WindowRow::default()
                });
            }
            points.push(PointRow {
                run: RunKey::new(name, name, seed),
                workload: WorkloadKey {
                    clients: 1000,
                    service: "exp 10us".into(),
                    demand_rps: 720e3,
                    ..WorkloadKey::default()
                },
                slo_us: 200.0,
                ..PointRow::default()
            });
            for pair in levels.windows(2) {
                shifts.push(ShiftRow {
                    run: RunKey::new(name, name, seed),
                    at_s: pair[0].0,
                    from_rps: pair[0].1,
                    to_rps: pair[1].1,
                    settled_goodput_rps: pair[1].1.min(801e3),
                    recovery_ms: if *name == "breakwater" { 20.0 } else { 2000.0 },
                    reached_ms: if *name == "breakwater" { 20.0 } else { 2000.0 },
                    recovered: *name == "breakwater",
                    goodput_dip_ratio: 0.97,
                    p99_peak_us: 281.0,
                    reject_delay_peak_us: 14.2,
                });
            }
        }
    }
    Results {
        schema: 1,
        scenario: "bw-shift".into(),
        title: "How fast each controller follows a shift of demand".into(),
        source: "Breakwater (OSDI 2020), figure 8".into(),
        plant: "sim".into(),
        seed: 1,
        plots: vec![
            plot("Goodput", "windows", ("start_s", "goodput_rps"), "line"),
            plot("Tail latency", "windows", ("start_s", "p99_us"), "line"),
            plot("Drops", "windows", ("start_s", "drops_rps"), "line"),
        ],
        points,
        windows,
        shifts,
        ..Results::default()
    }
}
