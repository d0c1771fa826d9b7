//! The simulated backend against queueing theory, and conservation.

use leeward_concurrency::fixed::Static;
use leeward_core::units::Nanos;
use leeward_proxy_sim::case::{Case, Demand, Discipline, Feature};
use leeward_proxy_sim::proxy::run;
use leeward_workload::ServiceTime;

const MS: Nanos = Nanos::from_millis(1);

fn case(cores: u32, service: ServiceTime, load: f64) -> Case {
    Case {
        id: 0,
        cores,
        discipline: Discipline::Fifo,
        service,
        features: Vec::new(),
        objective: MS * 100,
        load,
        demand: Demand::Steady,
    }
}

#[test]
fn the_median_of_an_exponential_server_is_as_in_theory() {
    // M/M/1: the sojourn is exponential with mean 1 ms / (1 − 0.5).
    let result = run(&case(1, ServiceTime::Exponential(MS), 0.5), Box::new(Static(1_000)), 1);
    let theory = 2e6 * std::f64::consts::LN_2;
    assert!((result.p50_ns as f64 / theory - 1.0).abs() < 0.1, "{} against {theory}", result.p50_ns);
    assert_eq!(result.good, result.offered);
}

#[test]
fn a_server_that_shares_its_core_does_not_care_about_the_distribution() {
    // M/G/1-PS: the mean depends on the mean alone; here the goodput of a full server.
    for service in
        [ServiceTime::Constant(MS), ServiceTime::Bimodal(MS), ServiceTime::Lognormal { mean: MS, sigma: 1.0 }]
    {
        let shared = Case { discipline: Discipline::ProcessorSharing, ..case(1, service.clone(), 2.0) };
        let result = run(&shared, Box::new(Static(4)), 1);
        let share = result.answered as f64 / result.offered as f64;
        assert!((share - 0.5).abs() < 0.03, "{service:?}: {share} of twice the capacity");
    }
}

#[test]
fn the_capacity_of_each_feature_is_reached_and_not_exceeded() {
    let features = [
        vec![],
        vec![Feature::Awaiting(MS * 10)],
        vec![Feature::Lock(1.0)],
        vec![Feature::Lock(0.25)],
        vec![Feature::Pauses],
        vec![Feature::Series],
        vec![Feature::Series, Feature::Lock(1.0), Feature::Pauses, Feature::Awaiting(MS * 5)],
    ];
    for features in features {
        for discipline in [Discipline::Fifo, Discipline::ProcessorSharing] {
            let case = Case { features: features.clone(), discipline, ..case(4, ServiceTime::Constant(MS), 2.0) };
            let result = run(&case, Box::new(Static(64)), 1);
            let share = result.answered as f64 / result.offered as f64;
            assert!((0.44..0.52).contains(&share), "{features:?}, {discipline:?}: {share}");
        }
    }
}

#[test]
fn a_thrashing_backend_is_best_at_few_requests() {
    let thrashing = Feature::Thrashing { share: 0.02, from: 8 };
    let case = Case { features: vec![thrashing], ..case(2, ServiceTime::Exponential(MS), 2.0) };
    let goodput = |number| run(&case, Box::new(Static(number)), 1).good;
    assert!(goodput(8) > goodput(48) * 11 / 10);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let case = Case::random(3);
    assert_eq!(run(&case, Box::new(Static(8)), 3), run(&case, Box::new(Static(8)), 3));
    assert_ne!(run(&case, Box::new(Static(8)), 3), run(&case, Box::new(Static(8)), 4));
}
