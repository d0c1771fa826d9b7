//! Learning while serving: wrong curves are corrected, a shadow changes nothing, and trials stay within their share.

use super::plant::{Plant, curve, environment};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_threading::curves::Curves;
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{SwitchReason, ThreadEnvironment, ThreadingSetup};
use std::sync::Arc;

/// Curves that say `SDB1-8` is best, which takes twice as long as they say.
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
    /// Requests that ended while a trial went on.
    trial_requests: u64,
    trials: u64,
}

/// So many requests at 500 per second, whose tails are `truth` of the setup.
fn serve(learn: &str, requests: u64, truth: impl Fn(ThreadingSetup) -> Nanos) -> TrialCounts {
    let choice: PolicyChoice = "leeward".parse().unwrap();
    let params = choice.policy.params(&[("learn", RawParam::Text(learn.into()))]).unwrap();
    let mut seen = TrialCounts {
        plant: Plant::new(choice.policy.build(&params, &wrong()).unwrap()),
        trial_requests: 0,
        trials: 0,
    };
    let mut switches = 0;
    let mut in_window = 0;
    for _ in 0..requests {
        seen.plant.steady(500.0, 1);
        let plant = &mut seen.plant;
        let tail = truth(plant.signals.current);
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
        let trying = gauges.reason == SwitchReason::Exploration && gauges.switches % 2 == 1;
        seen.trial_requests += u64::from(trying);
        seen.trials = gauges.switches;
    }
    assert_eq!(seen.plant.violations, []);
    seen
}

fn truth(setup: ThreadingSetup) -> Nanos {
    Nanos::from_micros(match setup.to_string().as_str() {
        "SDB1-8" => 1_600,
        "SDB1-4" => 900,
        _ => 1_000,
    })
}

#[test]
fn what_is_seen_corrects_the_curves() {
    let off = serve("off", 50_000, truth);
    assert_eq!((off.plant.signals.current.to_string().as_str(), off.trials), ("SDB1-8", 0));
    assert!(!off.plant.policy.gauges().stale);
    let on = serve("on", 50_000, truth);
    assert_eq!(on.plant.signals.current.to_string(), "SDB1-4");
    // Under the setup that is as its curve says, the curves are no longer stale.
    assert!(!on.plant.policy.gauges().stale);
}

#[test]
fn a_shadow_only_says_so() {
    let shadow = serve("shadow", 50_000, truth);
    assert_eq!((shadow.plant.signals.current.to_string().as_str(), shadow.trials), ("SDB1-8", 0));
    assert!(shadow.plant.policy.gauges().stale, "twice the latency for a hundred windows");
    assert_eq!(shadow.plant.policy.gauges().shadow, Some("SDB1-4".parse().unwrap()));
}

#[test]
fn trials_take_one_request_in_a_hundred() {
    // All as the curves say, so that every other setup is tried in vain.
    let as_said = |setup: ThreadingSetup| Nanos::from_micros(if setup.to_string() == "SDB1-8" { 800 } else { 900 });
    let seen = serve("on", 200_000, as_said);
    assert!(seen.trials >= 2, "nothing was tried");
    assert!(seen.trial_requests * 100 <= 200_000, "{} of 200,000 requests were in trials", seen.trial_requests);
    assert_eq!(seen.plant.signals.current.to_string(), "SDB1-8");
}

#[test]
fn a_trial_that_is_late_ends_at_once() {
    let bad = |setup: ThreadingSetup| {
        if setup.to_string() == "SDB1-4" { Nanos::from_millis(50) } else { Nanos::from_micros(800) }
    };
    let seen = serve("on", 150_000, bad);
    assert!(seen.trials >= 2, "nothing was tried");
    // Three late requests, and up to four arrivals until the next question.
    assert!(
        seen.plant.signals.late <= seen.trials / 2 * 8,
        "{} late in {} trials",
        seen.plant.signals.late,
        seen.trials
    );
    assert_eq!(seen.plant.signals.current.to_string(), "SDB1-8");
}
