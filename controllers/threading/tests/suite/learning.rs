//! Learning at run time: wrong curves are corrected, shadow mode changes nothing, and trials stay
//! within their share.

use super::plant::{Plant, curve, environment};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_threading::curves::Curves;
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{SwitchReason, ThreadEnvironment, ThreadingSetup};
use std::sync::Arc;

/// Curves by which `SDB1-8` is best, though its tail is twice as long as they predict.
fn wrong() -> ThreadEnvironment {
    let all = vec![
        curve("SDB1-4", 900.0, 0.4, 8_000.0),
        curve("SDB1-8", 800.0, 0.4, 8_000.0),
        curve("SDB1-32", 1_000.0, 0.4, 8_000.0),
    ];
    ThreadEnvironment { curves: Some(Arc::new(Curves::new(all).unwrap())), ..environment() }
}

struct TrialCounts {
    plant: Plant,
    /// Requests that ended during a trial.
    trial_requests: u64,
    trials: u64,
}

/// Serves this number of requests at 500 per second; `true_latency` gives the tail of a setup.
fn serve(learn: &str, requests: u64, true_latency: impl Fn(ThreadingSetup) -> Nanos) -> TrialCounts {
    let choice: PolicyChoice = "leeward".parse().unwrap();
    let params = choice.policy.params(&[("learn", RawParam::Text(learn.into()))]).unwrap();
    let mut counts = TrialCounts {
        plant: Plant::new(choice.policy.build(&params, &wrong()).unwrap()),
        trial_requests: 0,
        trials: 0,
    };
    let mut switches = 0;
    let mut in_window = 0;
    for _ in 0..requests {
        counts.plant.steady(500.0, 1);
        let plant = &mut counts.plant;
        let tail = true_latency(plant.signals.current);
        plant.signals.completions += 1;
        plant.signals.late += u64::from(tail > Nanos::from_millis(5));
        in_window += 1;
        if plant.switches.len() > switches {
            switches = plant.switches.len();
            in_window = 0;
        }
        if in_window == 500 {
            in_window = 0;
            plant.signals.latencies.window += 1;
            (plant.signals.latencies.samples, plant.signals.latencies.p99) = (500, tail);
        }
        let gauges = plant.policy.gauges();
        let is_trial = gauges.reason == SwitchReason::Exploration && gauges.switches % 2 == 1;
        counts.trial_requests += u64::from(is_trial);
        counts.trials = gauges.switches;
    }
    assert_eq!(counts.plant.violations, []);
    counts
}

fn true_latency(setup: ThreadingSetup) -> Nanos {
    Nanos::from_micros(match setup.to_string().as_str() {
        "SDB1-8" => 1_600,
        "SDB1-4" => 900,
        _ => 1_000,
    })
}

#[test]
fn measured_latencies_correct_the_curves() {
    let off = serve("off", 50_000, true_latency);
    assert_eq!((off.plant.signals.current.to_string().as_str(), off.trials), ("SDB1-8", 0));
    assert!(!off.plant.policy.gauges().stale);
    let on = serve("on", 50_000, true_latency);
    assert_eq!(on.plant.signals.current.to_string(), "SDB1-4");
    // Under the setup that matches its curve, the curves are no longer stale.
    assert!(!on.plant.policy.gauges().stale);
}

#[test]
fn shadow_learning_only_reports_the_better_setup() {
    let shadow = serve("shadow", 50_000, true_latency);
    assert_eq!((shadow.plant.signals.current.to_string().as_str(), shadow.trials), ("SDB1-8", 0));
    assert!(shadow.plant.policy.gauges().stale, "twice the latency for a hundred windows");
    assert_eq!(shadow.plant.policy.gauges().shadow, Some("SDB1-4".parse().unwrap()));
}

#[test]
fn trials_take_one_request_in_a_hundred() {
    // All setups match their curves, so no trial finds a better one.
    let as_predicted =
        |setup: ThreadingSetup| Nanos::from_micros(if setup.to_string() == "SDB1-8" { 800 } else { 900 });
    let counts = serve("on", 200_000, as_predicted);
    assert!(counts.trials >= 2, "nothing was tried");
    assert!(counts.trial_requests * 100 <= 200_000, "{} of 200,000 requests were in trials", counts.trial_requests);
    assert_eq!(counts.plant.signals.current.to_string(), "SDB1-8");
}

#[test]
fn a_trial_with_late_responses_ends_at_once() {
    let bad = |setup: ThreadingSetup| {
        if setup.to_string() == "SDB1-4" { Nanos::from_millis(50) } else { Nanos::from_micros(800) }
    };
    let counts = serve("on", 150_000, bad);
    assert!(counts.trials >= 2, "nothing was tried");
    // Three late requests, and up to four arrivals until the next decision.
    assert!(
        counts.plant.signals.late <= counts.trials / 2 * 8,
        "{} late in {} trials",
        counts.plant.signals.late,
        counts.trials
    );
    assert_eq!(counts.plant.signals.current.to_string(), "SDB1-8");
}
