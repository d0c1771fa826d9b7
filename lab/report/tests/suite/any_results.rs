//! Any results make a page: values that are not finite, huge, negative or absent never cause a
//! panic and never reach the SVG.

use leeward_outcome::results::{Plot, PointRow, Results, RunKey, ShiftRow, WindowRow, WorkloadKey};
use leeward_report::render;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn value() -> impl Strategy<Value = f64> {
    let odd = select(vec![
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -1.0,
        1e15,
    ]);
    prop_oneof![odd, 0.0..2e6, any::<f64>()]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![select(vec!["breakwater", "dagor", "none", ""]).prop_map(String::from), "[a-z<&\" ]{0,30}"]
}

fn point() -> impl Strategy<Value = PointRow> {
    (name(), name(), vec(value(), 9), any::<u32>(), 0..4_u64).prop_map(|(controller, label, values, clients, seed)| {
        PointRow {
            run: RunKey::new(&controller, &label, seed),
            workload: WorkloadKey {
                service: label,
                demand_rps: values[0],
                demand_ratio: values[1],
                clients,
                ..WorkloadKey::default()
            },
            capacity_rps: values[2],
            slo_us: values[3],
            goodput_rps: values[4],
            throughput_rps: values[5],
            p99_us: values[6],
            drop_rate: values[7],
            rx_mps: values[8],
            ..PointRow::default()
        }
    })
}

fn window() -> impl Strategy<Value = WindowRow> {
    (name(), vec(value(), 5), 0..3_u64).prop_map(|(label, values, seed)| WindowRow {
        run: RunKey::new(&label, &label, seed),
        start_s: values[0],
        demand_rps: values[1],
        goodput_rps: values[2],
        p99_us: values[3],
        credit_pool: Some(values[4]),
        ..WindowRow::default()
    })
}

fn shift() -> impl Strategy<Value = ShiftRow> {
    (name(), vec(value(), 4), any::<bool>()).prop_map(|(label, values, recovered)| ShiftRow {
        run: RunKey::new("", &label, 0),
        at_s: values[0],
        from_rps: values[1],
        recovery_ms: values[2],
        reached_ms: values[2],
        p99_peak_us: values[3],
        recovered,
        ..ShiftRow::default()
    })
}

fn plot() -> impl Strategy<Value = Plot> {
    let fields = || {
        let fields = vec![
            "demand_rps",
            "demand_ratio",
            "clients",
            "label",
            "service",
            "goodput_rps",
            "p99_us",
            "drop_rate",
            "rx_mps",
            "start_s",
            "credit_pool",
            "absent",
            "",
        ];
        select(fields).prop_map(String::from)
    };
    let scale = || select(vec!["linear", "log", "odd"]).prop_map(String::from);
    let word = |words: Vec<&'static str>| select(words).prop_map(String::from);
    let only = vec(word(vec!["seed=1", "clients=1e999", "label=", "=", ""]), 0..2);
    let table = word(vec!["points", "windows", "shifts", "odd"]);
    let kind = word(vec!["line", "bars", "scatter", "odd"]);
    (table, fields(), fields(), fields(), only, (scale(), scale()), kind).prop_map(
        |(table, x, y, series, only, (x_scale, y_scale), kind)| Plot {
            title: "t".into(),
            table,
            x,
            y,
            series,
            only,
            x_scale,
            y_scale,
            kind,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_results_make_a_page(
        points in vec(point(), 0..12),
        windows in vec(window(), 0..80),
        shifts in vec(shift(), 0..4),
        plots in vec(plot(), 0..5),
    ) {
        let page = render(&Results { points, windows, shifts, plots, ..Results::default() });
        prop_assert!(page.ends_with("</html>"));
        prop_assert!(!page.contains("NaN"), "a number that is none");
        prop_assert!(!page.contains("\"inf") && !page.contains(" inf"), "an infinite number");
    }
}
