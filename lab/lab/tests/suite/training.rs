//! Training on a bench with known latencies, and advice from known curves.

use leeward_core::units::{Nanos, Rate};
use leeward_lab::training::advice::{AdviceQuery, Confidence, advise, training_range};
use leeward_lab::training::{
    Arrivals, Bench, Candidate, Measurement, ServiceTier, ServiceTierSpec, TrainingOutcome, TrainingPlan, Trial, train,
};
use leeward_outcome::Percentiles;
use leeward_threading::curves::{Curve, CurvePoint, Curves, TailPercentile};
use leeward_threading::{Handling, ThreadingSetup, Wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Latencies by formula: in-line polling takes 100 us and sustains 1,000/s per thread, dispatched
/// polling 150 us and 4,000/s; blocking adds 60 us.
#[derive(Default)]
struct FormulaBench {
    trials: Mutex<Vec<(ThreadingSetup, f64, u64)>>,
    stop_after: Option<usize>,
    is_late: bool,
}

fn true_performance(setup: ThreadingSetup) -> (f64, f64) {
    let setup = setup.setup().unwrap();
    let (us, each) = if setup.handling == Handling::InLine { (100.0, 1_000.0) } else { (150.0, 4_000.0) };
    let threads = f64::from(setup.network.max(setup.worker));
    (if setup.wait == Wait::Block { us + 60.0 } else { us }, each * threads)
}

impl Bench for FormulaBench {
    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, leeward_lab::run::RunError> {
        let Trial { candidate, load, requests, round } = *trial;
        let Candidate::Setup(setup) = candidate else { unreachable!("training measures setups") };
        let mut asked = self.trials.lock().unwrap();
        asked.push((setup, load.0, requests));
        if self.stop_after == Some(asked.len()) {
            stop.store(true, Ordering::Relaxed);
        }
        let (us, capacity) = true_performance(setup);
        let completed = if self.is_late { 0 } else { (requests as f64 * (capacity / load.0).min(1.0)) as u64 };
        // The bend of a queue, and a small difference between rounds.
        let us = us * (1.0 + 0.2 * (load.0 / capacity).min(1.0).powi(4)) * (1.0 + 0.001 * f64::from(round));
        let at = |part: f64| Nanos((us * part * 1e3) as u64);
        let latency = Percentiles {
            count: completed,
            mean_ns: us * 600.0,
            p50: at(0.6),
            p90: at(0.9),
            p99: at(1.0),
            p999: at(1.1),
            max: at(1.2),
        };
        Ok(Measurement { issued: requests, completed, latency, cpu: 1.0, clients_late: self.is_late, noise: 0.0 })
    }
}

fn plan(setups: &[&str]) -> TrainingPlan {
    TrainingPlan::new(setups.iter().map(|setup| setup.parse().unwrap()).collect())
}

fn train_all(bench: &FormulaBench, plan: &TrainingPlan) -> TrainingOutcome {
    train(bench, plan, &|_| (), &|| false, &AtomicBool::new(false)).unwrap()
}

#[test]
fn training_measures_the_capacity_and_the_latency_of_setups() {
    let bench = FormulaBench::default();
    let trained = train_all(&bench, &plan(&["SIP1", "SDB1-4", "SDP1-4"]));
    assert!(!trained.timed_out && trained.excluded.is_empty());
    for curve in trained.curves.all() {
        let (us, capacity) = true_performance(curve.setup);
        assert!((0.9..=1.03).contains(&(curve.max_load / capacity)), "{}: {}", curve.setup, curve.max_load);
        let low = curve.latency(TailPercentile::P99, Rate(curve.points[0].load)).unwrap().as_micros_f64();
        assert!((low / us - 1.0).abs() < 0.01, "{}: {low}", curve.setup);
    }
    // From a hundredth of the best setup's capacity.
    let lowest = trained.curves.all()[0].points[0].load;
    assert!((100.0..300.0).contains(&lowest), "{lowest}");
}

#[test]
fn clearly_slower_setups_get_no_further_measurements() {
    let bench = FormulaBench::default();
    let plan = TrainingPlan { loads: Some((Rate(100.0), Rate(800.0))), ..plan(&["SIP1", "SIB1", "SDB1-4"]) };
    let trained = train_all(&bench, &plan);
    let asked = bench.trials.lock().unwrap();
    let requests = |setup: &str| {
        let setup: ThreadingSetup = setup.parse().unwrap();
        asked.iter().filter(|(asked, ..)| *asked == setup).map(|(.., requests)| *requests).max()
    };
    assert_eq!((requests("SIP1"), requests("SIB1"), requests("SDB1-4")), (Some(2_000), Some(500), Some(500)));
    let samples = |setup: &str| trained.curves.get(setup.parse().unwrap()).unwrap().points[0].samples;
    assert_eq!((samples("SIP1"), samples("SIB1")), (2_000, 500));
    // In rounds: all setups at a load before the next load.
    let loads: Vec<f64> = asked.iter().map(|(_, load, _)| *load).collect();
    assert!(loads.is_sorted());
}

#[test]
fn a_setup_that_sustains_no_load_is_excluded() {
    let plan = TrainingPlan { loads: Some((Rate(1_500.0), Rate(3_000.0))), ..plan(&["SIP1", "SDB1-4"]) };
    let trained = train_all(&FormulaBench::default(), &plan);
    assert_eq!(trained.excluded, ["SIP1".parse().unwrap()]);
    let plan = TrainingPlan { loads: Some((Rate(1e6), Rate(2e6))), ..plan };
    let error = train(&FormulaBench::default(), &plan, &|_| (), &|| false, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("train at lower loads"), "{error}");
}

#[test]
fn a_time_limit_keeps_partial_curves_and_cancelling_keeps_none() {
    let bench = FormulaBench::default();
    let plan = TrainingPlan { loads: Some((Rate(100.0), Rate(3_000.0))), ..plan(&["SDB1-4"]) };
    let over = || bench.trials.lock().unwrap().len() > 8;
    let trained = train(&bench, &plan, &|_| (), &over, &AtomicBool::new(false)).unwrap();
    assert!(trained.timed_out);
    assert!(trained.curves.all()[0].max_load < 3_000.0);
    let bench = FormulaBench { stop_after: Some(5), ..FormulaBench::default() };
    let stopped = train(&bench, &plan, &|_| (), &|| false, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(stopped.to_string(), "cancelled");
    assert_eq!(bench.trials.lock().unwrap().len(), 5);
}

fn curve(setup: &str, us: f64, cpu: f64, sustains: f64) -> Curve {
    let point =
        |load| CurvePoint { load, p50_us: us / 2.0, p99_us: us, p999_us: us * 2.0, cpu, samples: 2_000, spread: 0.02 };
    Curve { setup: setup.parse().unwrap(), points: vec![point(10.0), point(sustains)], max_load: sustains }
}

#[test]
fn advice_has_few_setups_and_one_that_saves_cpu() {
    let all = vec![
        curve("SIP1", 100.0, 1.0, 1_000.0),
        curve("SIP2", 102.0, 2.0, 2_000.0),
        curve("SDP1-4", 160.0, 1.5, 5_000.0),
        curve("SDB1-16", 200.0, 0.3, 20_000.0),
    ];
    let question = AdviceQuery {
        slo: Nanos::from_micros(300),
        tail: TailPercentile::P99,
        min_load: Rate(50.0),
        max_load: Rate(8_000.0),
    };
    let advice = advise(&Curves::new(all).unwrap(), &question);
    let steps: Vec<String> = advice.steps.iter().map(|(from, setup)| format!("{setup} from {:.0}", from.0)).collect();
    // SIP2 is within 5 % of SIP1 and sustains more.
    assert_eq!(steps, ["SIP2 from 50", "SDP1-4 from 1800", "SDB1-16 from 4500"]);
    let alone = advice.single.unwrap();
    assert_eq!((alone.setup.to_string().as_str(), alone.factor), ("SDB1-16", 2.0));
    assert_eq!(advice.cheapest.unwrap().setup.to_string(), "SDB1-16");
    assert_eq!(advice.max_slo_load, Some(Rate(8_000.0)));
    let first = &advice.rows[0];
    assert_eq!((first.best.to_string().as_str(), first.confidence), ("SIP1", Confidence::Tie));
    assert_eq!(advice.rows[9].confidence, Confidence::Sure);
    // No load keeps this objective.
    let tight = advise(
        &Curves::new(vec![curve("SIP1", 100.0, 1.0, 1_000.0)]).unwrap(),
        &AdviceQuery { slo: Nanos(99_000), ..question },
    );
    assert_eq!((tight.max_slo_load, tight.cheapest, tight.rows[9].best.to_string().as_str()), (None, None, "SIP1"));
}

#[test]
fn between_equally_good_setups_the_one_with_more_capacity_is_advised() {
    let advised = |spread: f64| {
        let point = |load: f64, us: f64| CurvePoint {
            load,
            p50_us: us / 2.0,
            p99_us: us,
            p999_us: us,
            cpu: 1.0,
            samples: 500,
            spread,
        };
        let steep = vec![point(10.0, 100.0), point(900.0, 100.0), point(1_000.0, 400.0)];
        let level = vec![point(10.0, 110.0), point(2_000.0, 110.0)];
        let curves = vec![
            Curve { setup: "SIP1".parse().unwrap(), points: steep, max_load: 1_000.0 },
            Curve { setup: "SDB1-4".parse().unwrap(), points: level, max_load: 2_000.0 },
        ];
        let question = AdviceQuery {
            slo: Nanos::from_millis(1),
            tail: TailPercentile::P99,
            min_load: Rate(840.0),
            max_load: Rate(860.0),
        };
        let advice = advise(&Curves::new(curves).unwrap(), &question);
        (advice.steps[0].1.to_string(), advice.rows[0].best.to_string(), advice.rows[0].confidence)
    };
    assert_eq!(advised(0.01), ("SIP1".into(), "SIP1".into(), Confidence::Sure));
    assert_eq!(advised(0.3), ("SDB1-4".into(), "SDB1-4".into(), Confidence::Unsure));
}

#[test]
fn a_setup_is_advised_as_far_below_its_end_as_that_end_is_uncertain() {
    let advised = |spread: f64, load: f64| {
        let mut curves = vec![curve("SIP1", 100.0, 1.0, 1_000.0), curve("SDB1-4", 200.0, 1.0, 4_000.0)];
        curves[0].points[1].spread = spread;
        let (slo, tail) = (Nanos::from_millis(1), TailPercentile::P99);
        let question = AdviceQuery { slo, tail, min_load: Rate(load), max_load: Rate(load * 1.01) };
        advise(&Curves::new(curves).unwrap(), &question).rows[0].best.to_string()
    };
    // The usual margin covers a tenth.
    assert_eq!([advised(0.02, 890.0), advised(0.1, 890.0), advised(0.02, 910.0)], ["SIP1", "SIP1", "SDB1-4"]);
    assert_eq!([advised(0.5, 660.0), advised(0.5, 670.0)], ["SIP1", "SDB1-4"]);
}

/// A simulated tier with gRPC's costs and the paper's leaves.
fn tier() -> leeward_sim::SimConfig {
    use leeward_sim::config::{SimConfig, Workload};
    use leeward_sim::service_time::ServiceTime;
    use leeward_sim::threads::model::{Gather, LeafSelection, Leaves, Sharing, TailModel, Tier};
    let us = Nanos::from_micros;
    let leaf = ServiceTime::parse("lognormal:320us:0.1").unwrap();
    let leaves = Leaves {
        count: 4,
        selection: LeafSelection::All,
        service: leaf,
        servers: 5,
        per_call: Nanos::ZERO,
        host_call: Nanos::ZERO,
        rtt: us(20),
        tails: TailModel::default(),
    };
    let tier = Tier {
        cpus: 36,
        costs: leeward_sim::threads::presets::preset("grpc").unwrap(),
        resume: us(6),
        leaves,
        gather: Gather::Own,
        front: Sharing::Shared,
        links: Sharing::Shared,
        threading: "SIP1".parse().unwrap(),
        policy: None,
    };
    let testbed = SimConfig::testbed(ServiceTime::Constant(us(24)), 1.0);
    let workload = Workload { clients: 1, ..testbed.workload.clone() };
    SimConfig { tier: Some(Box::new(tier)), workload, ..testbed }
}

#[test]
fn a_simulated_tier_is_trained_the_same_on_any_number_of_threads() {
    let bench = leeward_lab::training::SimulatedTier::new(tier());
    let plan = TrainingPlan {
        loads: Some((Rate(200.0), Rate(4_000.0))),
        min_requests: 100,
        max_requests: 200,
        ..plan(&["SIP1", "SDB1-16", "AIP1-0-1"])
    };
    let run = || train(&bench, &plan, &|_| (), &|| false, &AtomicBool::new(false)).unwrap();
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(run);
    assert_eq!(one, run());
    let sustains = |setup: &str| one.curves.get(setup.parse().unwrap()).unwrap().max_load;
    // One in-line thread is blocked for the whole request, an async one is not.
    assert!(sustains("SIP1") < sustains("AIP1-0-1"), "{:?}", one.curves);
    let cores = TrainingPlan { setups: vec![ThreadingSetup::Cores(2)], ..plan };
    let error = train(&bench, &cores, &|_| (), &|| false, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("CORE2` is measured, not simulated"), "{error}");
}

#[test]
fn advice_has_an_alternative_at_the_highest_load() {
    let loads = (Rate(100.0), Rate(800.0));
    let plan = TrainingPlan { loads: Some(training_range(loads)), ..plan(&["SDB1-4", "SIP1", "SIB1"]) };
    let curves = train_all(&FormulaBench::default(), &plan).curves;
    let (slo, tail) = (Nanos::from_millis(1), TailPercentile::P99);
    let advice = advise(&curves, &AdviceQuery { slo, tail, min_load: loads.0, max_load: loads.1 });
    let last = advice.rows.last().unwrap();
    assert_eq!((last.load, last.best.to_string()), (loads.1, "SIP1".into()));
    assert!(last.second.is_some(), "{last:?}");
}

#[test]
fn late_clients_are_reported() {
    let bench = FormulaBench { is_late: true, ..FormulaBench::default() };
    let plan = TrainingPlan { loads: Some((Rate(100.0), Rate(400.0))), ..plan(&["SIP1"]) };
    let error = train(&bench, &plan, &|_| (), &|| false, &AtomicBool::new(false)).unwrap_err().to_string();
    let measured = bench.trials.lock().unwrap().len();
    assert!(error.contains(&format!("in {measured} of {measured} measurements the clients were late")), "{error}");
}

#[test]
fn services_with_leaves_are_measured_through_their_tier() {
    let spec = ServiceTierSpec {
        data: Some("synthetic:2000:20:1".into()),
        leaves: 2,
        cpus: 1,
        arrivals: Arrivals::Poisson,
        slo: Nanos::from_millis(50),
        seed: 1,
    };
    let stop = AtomicBool::new(false);
    let tier = ServiceTier::start("set-algebra", &spec, &|_| ()).unwrap();
    assert_eq!((tier.name(), tier.data()), ("sets", "synthetic:2000:20:1"));
    let trial = |candidate| Trial { candidate, load: Rate(200.0), requests: 60, round: 0 };
    let measure = |setup: &str| tier.measure(&trial(Candidate::Setup(setup.parse().unwrap())), &stop);
    // A busy machine may answer few requests in time, but none in part: a failed request is an
    // error. Answers count by their end, and latencies by the requests' due times.
    for setup in ["SIB1", "SDB1-2", "ADB1-1-1"] {
        let sample = measure(setup).unwrap();
        assert!(sample.issued > 20 && sample.latency.count <= sample.issued, "{setup}: {sample:?}");
    }
    let point = |load| CurvePoint { load, p50_us: 1.0, p99_us: 2.0, p999_us: 3.0, cpu: 1.0, samples: 500, spread: 0.1 };
    let curve =
        |setup: &str| Curve { setup: setup.parse().unwrap(), points: vec![point(10.0), point(900.0)], max_load: 900.0 };
    let curves = Arc::new(Curves::new(vec![curve("SIB1"), curve("ADB1-1-1")]).unwrap());
    assert!(tier.measure(&trial(Candidate::Policy(&curves)), &stop).unwrap().issued > 20);
    let refused = measure("CORE1").unwrap_err();
    assert!(refused.is_input() && refused.to_string().starts_with("CORE1 can't be changed to"), "{refused}");
    assert!(!ServiceTier::is_known("echo") && ServiceTier::is_known("hdsearch"));
    let nothing = ServiceTierSpec { data: Some("synthetic:0:0:0".into()), ..spec };
    assert!(ServiceTier::start("hdsearch", &nothing, &|_| ()).err().is_some_and(|error| error.is_input()));
}
