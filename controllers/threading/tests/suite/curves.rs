//! Curves: predictions, the best setup at each load against an exhaustive search, and rejected
//! curves.

use super::plant::{curve, curves};
use super::setups::any_setup;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, CurvePoint, Curves, CurvesError, Envelope, Objective, TailPercentile};
use proptest::prelude::*;

fn any_curve() -> impl Strategy<Value = Curve> {
    let point = (1.0..4_000.0, 10.0..1_000.0, 1.0..3.0, 1.0..2.0, 0.0..8.0);
    (any_setup(), proptest::collection::vec(point, 2..8), 1.0..2.0).prop_map(|(setup, raw, beyond)| {
        let mut load = 0.0;
        let curve_points: Vec<CurvePoint> = raw
            .into_iter()
            .map(|(step, p50_us, tail, further, cpu)| {
                load += step;
                let p99_us = p50_us * tail;
                CurvePoint { load, p50_us, p99_us, p999_us: p99_us * further, cpu, samples: 500, spread: 0.1 }
            })
            .collect();
        Curve { setup: ThreadingSetup::Setup(setup), max_load: load * beyond, points: curve_points }
    })
}

fn any_curves() -> impl Strategy<Value = Curves> {
    proptest::collection::vec(any_curve(), 1..12).prop_map(|mut all| {
        all.sort_by_key(|curve| curve.setup);
        all.dedup_by_key(|curve| curve.setup);
        Curves::new(all).unwrap()
    })
}

/// Exhaustive search for the best score.
fn search(curves: &Curves, objective: Objective, margin: f64, load: f64) -> Option<f64> {
    let eligible = curves.all().iter().filter(|curve| load <= curve.max_load * margin);
    let latency = |curve: &Curve, tail| curve.latency(tail, Rate(load)).unwrap().0 as f64;
    match objective {
        Objective::Latency(tail) => eligible.map(|curve| latency(curve, tail)).reduce(f64::min),
        Objective::Cpu(tail, max) => {
            let quick = eligible.clone().filter(|curve| latency(curve, tail) <= max.0 as f64);
            let cheapest = quick.map(|curve| curve.cpu(Rate(load)).unwrap()).reduce(f64::min);
            cheapest.or_else(|| eligible.map(|curve| 1e15 + latency(curve, tail)).reduce(f64::min))
        }
    }
}

proptest! {
    #[test]
    fn the_envelope_equals_an_exhaustive_search(curves in any_curves(), cpu in any::<bool>(), max_us in 10u64..2_000, loads in proptest::collection::vec(0.0..40_000.0, 40)) {
        let objective = if cpu { Objective::Cpu(TailPercentile::P99, Nanos::from_micros(max_us)) } else { Objective::Latency(TailPercentile::P99) };
        let envelope = Envelope::new(curves.clone(), objective, 0.9);
        let bends: Vec<f64> = envelope.intervals().map(|(from, _)| from.0).collect();
        prop_assert!(bends.is_sorted() && bends[0] == 0.0);
        for load in loads {
            let best = envelope.best(Rate(load));
            match search(&curves, objective, 0.9, load) {
                // Equal up to rounding: at a crossing either curve is the best.
                Some(lowest) => {
                    let found = envelope.score(best, Rate(load)).unwrap();
                    let near = bends.iter().any(|bend| (bend - load).abs() <= load * 1e-9);
                    prop_assert!((found - lowest).abs() <= lowest * 1e-6 + 2.0 || near, "{load}: {} has {found}, least {lowest}", best.setup);
                }
                None => prop_assert_eq!(best.setup, curves.strongest().setup),
            }
        }
    }

    #[test]
    fn no_latency_is_predicted_beyond_the_sustained_load(curve in any_curve(), load in prop_oneof![0.0..40_000.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)]) {
        let (lowest, highest) = curve.points.iter().fold((f64::MAX, 0.0f64), |(a, b), point| (a.min(point.p99_us), b.max(point.p99_us)));
        match curve.latency(TailPercentile::P99, Rate(load)) {
            Some(latency) => {
                prop_assert!(load <= curve.max_load);
                prop_assert!(latency.as_micros_f64() >= lowest - 0.001 && latency.as_micros_f64() <= highest + 0.001);
            }
            None => prop_assert!(load.is_nan() || load > curve.max_load),
        }
    }
}

#[test]
fn the_envelope_orders_the_setups_as_the_paper_does() {
    let sync = curves().with_fanout(leeward_threading::Fanout::Sync).unwrap();
    let envelope = Envelope::new(sync, Objective::Latency(TailPercentile::P99), 1.0);
    let order: Vec<String> = envelope.intervals().map(|(_, curve)| curve.setup.to_string()).collect();
    assert_eq!(order, ["SIP1", "SDP1-20", "SDB1-50"]);
    assert_eq!(envelope.best(Rate(1e9)).setup.to_string(), "SDB1-50");
    assert_eq!(envelope.best(Rate(f64::NAN)).setup.to_string(), "SIP1");
}

fn refuses(spoil: impl FnOnce(&mut Curve), part: &str) {
    let mut curves = vec![curve("SIP1", 560.0, 1.0, 1_800.0), curve("SDB1-50", 850.0, 0.6, 16_000.0)];
    spoil(&mut curves[1]);
    let message = Curves::new(curves).unwrap_err().to_string();
    assert!(message.contains(part) && message.contains("accepted") && !message.contains('\n'), "{message}");
}

#[test]
fn impossible_curves_are_rejected() {
    refuses(|curve| curve.points.truncate(1), "SDB1-50: loads: 1; accepted: from 2 to 64 knots");
    refuses(|curve| curve.points.swap(0, 1), "ascending loads");
    refuses(|curve| curve.points[1].load = f64::NAN, "`loads` can't be NaN");
    refuses(|curve| curve.points[0].load = -1.0, "`loads` can't be -1");
    refuses(|curve| curve.points[0].p99_us = 1.0, "`p99_us` can't be 1");
    refuses(|curve| curve.points[0].p999_us = f64::INFINITY, "`p999_us` can't be inf");
    refuses(|curve| curve.points[0].p50_us = 0.0, "`p50_us` can't be 0");
    refuses(|curve| curve.points[0].cpu = -0.5, "`cpu` can't be -0.5");
    refuses(|curve| curve.points[0].spread = f64::NAN, "`spread` can't be NaN");
    refuses(|curve| curve.max_load = 1.0, "`sustains` can't be 1");
    refuses(|curve| curve.max_load = f64::NAN, "`sustains` can't be NaN");
    refuses(|curve| curve.setup = "SIP1".parse().unwrap(), "SIP1 has two curves");
    assert!(matches!(Curves::new(Vec::new()), Err(CurvesError::Count { found: 0, .. })));
    let many = (1..=300u16).map(|pool| Curve { setup: ThreadingSetup::Cores(pool), ..curve("SIP1", 1.0, 1.0, 100.0) });
    assert!(matches!(Curves::new(many.collect()), Err(CurvesError::Count { found: 300, .. })));
}
