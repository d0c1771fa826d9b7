//! Claims over handmade results.

use leeward_lab::claims::{Expression, judge};
use leeward_lab::results::{PointRow, Results, RunKey, ShiftRow, Verdict, WindowRow, WorkloadKey};
use leeward_lab::scenario::ClaimSpec;

fn results() -> Results {
    let point = |label: &str, demand_ratio: f64, seed: u64, goodput_rps: f64| PointRow {
        run: RunKey::new(label.split(' ').next().unwrap(), label, seed),
        workload: WorkloadKey {
            service: "exp:10us".into(),
            demand_ratio,
            demand_rps: demand_ratio * 849_978.8,
            ..WorkloadKey::default()
        },
        capacity_rps: 849_978.8,
        goodput_rps,
        ..PointRow::default()
    };
    Results {
        points: vec![
            point("a", 1.0, 1, 800.0),
            point("a", 2.0, 1, 1000.0),
            point("a", 1.0, 2, 820.0),
            point("a", 2.0, 2, 1100.0),
            point("b", 2.0, 1, 500.0),
            point("b", 2.0, 2, 500.0),
            point("b target=70us", 2.0, 1, 0.0),
        ],
        windows: vec![WindowRow {
            run: RunKey::new("a", "a", 1),
            start_s: 2.0,
            goodput_rps: 5.0,
            ..WindowRow::default()
        }],
        shifts: vec![ShiftRow {
            run: RunKey::new("a", "a", 1),
            to_rps: 1.2e6,
            recovery_ms: 12.0,
            ..ShiftRow::default()
        }],
        ..Results::default()
    }
}

/// Checks the value for seed 1.
fn check(text: &str, expected: Option<f64>) {
    let value = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).evaluate(&results(), 1);
    assert_eq!(value, expected, "{text}");
}

#[test]
fn arithmetic() {
    check("1 + 2 * 3 - 4 / 2", Some(5.0));
    check("-(1 + 2) * -2", Some(6.0));
    check("10 - 3 - 2", Some(5.0));
    check("850k + 1.2M", Some(2_050_000.0));
    check("50%", Some(0.5));
    check("min(3, 1, 2) + max(3, 1) + mean(1, 2) + median(9, 1, 2)", Some(7.5));
}

#[test]
fn selections() {
    check("goodput_rps{a, demand_ratio=2}", Some(1000.0));
    check("goodput_rps{ a , demand_ratio = 2x }", Some(1000.0));
    check("goodput_rps{a}", Some(900.0));
    check("max(goodput_rps{a})", Some(1000.0));
    check("min(goodput_rps{a}, 1)", Some(1.0));
    check("goodput_rps{a, demand_ratio>=1.5} / goodput_rps{b, demand_ratio=2}", Some(2.0));
    check("goodput_rps{a, demand_ratio<2}", Some(800.0));
    check("goodput_rps{a, demand_rps=850k}", Some(800.0));
    check("goodput_rps{controller=b, label!=b}", Some(0.0));
    check("goodput_rps{b target=70us, service=exp:10us}", Some(0.0));
    check("windows.goodput_rps{a, start_s>=2}", Some(5.0));
    check("shifts.recovery_ms{a, to_rps=1200k}", Some(12.0));
    check("max(points.goodput_rps)", Some(1000.0));
    check("goodput_rps{a, demand_ratio=3}", None);
    check("max(goodput_rps{a, demand_ratio=3}, 1)", None);
    check("goodput_rps{a} + goodput_rps{c}", None);
    check("windows.credit_pool{a}", None);
}

#[test]
fn invalid_expressions_are_rejected() {
    for (text, part) in [
        ("", "at character 1: expected a number"),
        ("1 +", "expected a number"),
        ("1 2", "at character 3: `2` where"),
        ("(1", "expected `)`"),
        ("sum(1)", "unknown function `sum`; accepted: min, max"),
        ("goodness", "accepted: demand_rps"),
        ("label{a}", "`label` is no number of points"),
        ("rows.goodput_rps", "unknown table `rows`"),
        ("goodput_rps{a, b}", "`b` is no condition"),
        ("goodput_rps{a, demand=2}", "`demand` is no field"),
        ("goodput_rps{demand=2}", "`demand` is no field"),
        ("goodput_rps{a, demand_ratio=two}", "expected a number"),
        ("goodput_rps{a, label>b}", "by `=` or `!=`"),
        ("goodput_rps{a", "expected"),
        ("1.2.3", "is not a number"),
        ("shifts.goodput_rps{a}", "is no number of shifts"),
    ] {
        let message = Expression::parse(text).expect_err(text).to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}

fn spec(measure: &str, min: Option<f64>, max: Option<f64>) -> ClaimSpec {
    ClaimSpec {
        id: "c".into(),
        text: String::new(),
        paper: String::new(),
        measure: Expression::parse(measure).unwrap(),
        unit: "x".into(),
        ours: false,
        number: None,
        min,
        max,
        note: String::new(),
    }
}

#[test]
fn a_claim_that_needs_a_point_with_late_load_is_undecided() {
    let mut results = results();
    let point = results.points.iter_mut().find(|point| point.run.label == "b" && point.run.seed == 2).unwrap();
    point.late_us = Some(900.0);
    let ratio = "goodput_rps{a, demand_ratio=2} / goodput_rps{b}";
    let claim = judge(&spec(ratio, Some(2.0), None), &results);
    assert_eq!((claim.verdict, claim.late.as_slice()), (Verdict::Undecided, ["b".to_string()].as_slice()));
    assert_eq!(claim.unmeasured().as_deref(), Some("the load generator was late: b"));
    let other = judge(&spec("goodput_rps{a, demand_ratio=2}", Some(900.0), None), &results);
    assert_eq!((other.verdict, other.unmeasured()), (Verdict::Reproduced, None));
}

#[test]
fn verdicts() {
    let judged = |measure: &str, min: Option<f64>, max: Option<f64>| {
        let spec = spec(measure, min, max);
        let claim = judge(&spec, &results());
        (claim.verdict, claim.value, claim.measured, claim.accepted)
    };
    let ratio = "goodput_rps{a, demand_ratio=2} / goodput_rps{b}";
    let expect =
        |verdict, value, measured: &str, accepted: &str| (verdict, value, measured.to_string(), accepted.to_string());
    assert_eq!(judged(ratio, Some(2.0), None), expect(Verdict::Reproduced, Some(2.1), "2.1x (2–2.2)", "at least 2x"));
    // The interval reaches from 2 to 2.2.
    assert_eq!(judged(ratio, None, Some(2.0)), expect(Verdict::Undecided, Some(2.1), "2.1x (2–2.2)", "at most 2x"));
    assert_eq!(
        judged(ratio, None, Some(1.9)),
        expect(Verdict::NotReproduced, Some(2.1), "2.1x (2–2.2)", "at most 1.9x")
    );
    assert_eq!(
        judged(ratio, Some(1.0), Some(2.2)),
        expect(Verdict::Reproduced, Some(2.1), "2.1x (2–2.2)", "from 1 to 2.2x")
    );
    let nothing = "goodput_rps{c}";
    assert_eq!(
        judged(nothing, Some(1.0), None),
        expect(Verdict::NotApplicable, None, "not measured in this run", "at least 1x")
    );
    let (verdict, value, measured, _) = judged("1 / goodput_rps{b target=70us}", Some(1.0), None);
    assert_eq!((verdict, value), (Verdict::Undecided, None), "infinite, but one seed has no such row");
    assert!(measured.starts_with('∞'), "{measured}");
    let (verdict, value, measured, _) = judged("0 * goodput_rps{b target=70us} / 0", Some(1.0), None);
    assert_eq!((verdict, value), (Verdict::NotApplicable, None));
    assert!(measured.contains("zero by zero"), "{measured}");
}
