//! Guarantees of every policy for all signals: only setups among its choices, finite rates, a
//! reaction to silence, no change on a clock that stands still, and no step down while requests are
//! rejected.

use super::defective::{Defect, DefectivePolicy};
use super::plant::{MS, Plant, SECOND, Violation, curves, environment, every_policy};
use leeward_core::units::{Nanos, Rate};
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{PollSchedule, ThreadingPolicy, ThreadingSetup};
use proptest::prelude::*;

/// Part of a run.
#[derive(Clone, Debug)]
enum Phase {
    /// Arrivals with gaps of up to twice the mean.
    Load { rate: f64, arrivals: u64, seed: u64 },
    /// No arrivals.
    Silence { ns: u64 },
    /// Arrivals while the clock stands still, and the jump of the clock afterwards.
    Frozen { arrivals: u64, jump: u64 },
    /// Sets the oldest wait and the rejected requests from here on.
    Pressure { oldest: u64, dropped: u64 },
    /// Demand as reported by clients and simulators, true or not.
    ReportedDemand { offered: f64, demand: Option<f64> },
    /// Calls at the wrong time.
    Spurious { questions: u8 },
}

fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let rate = prop_oneof![1.0..100.0, 100.0..20_000.0, Just(1e6)];
    let reported = prop_oneof![Just(0.0), 1.0..20_000.0, Just(f64::INFINITY), Just(f64::NAN), Just(-1.0)];
    let phase = prop_oneof![
        4 => (rate, 1..150u64, any::<u64>()).prop_map(|(rate, arrivals, seed)| Phase::Load { rate, arrivals, seed }),
        1 => (0..10 * SECOND).prop_map(|ns| Phase::Silence { ns }),
        1 => (1..200u64, 0..200 * MS).prop_map(|(arrivals, jump)| Phase::Frozen { arrivals, jump }),
        1 => (0..20 * MS, 0..3u64).prop_map(|(oldest, dropped)| Phase::Pressure { oldest, dropped }),
        1 => (reported, proptest::option::of(0.0..20_000.0)).prop_map(|(offered, demand)| Phase::ReportedDemand { offered, demand }),
        1 => any::<u8>().prop_map(|questions| Phase::Spurious { questions }),
    ];
    proptest::collection::vec(phase, 1..12)
}

fn run(plant: &mut Plant, phases: &[Phase]) {
    for phase in phases {
        match *phase {
            Phase::Load { rate, arrivals, mut seed } => {
                for _ in 0..arrivals {
                    seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                    plant.arrive((2.0 * SECOND as f64 / rate * ((seed >> 11) as f64 / (1u64 << 53) as f64)) as u64);
                }
            }
            Phase::Silence { ns } => plant.wait(ns),
            Phase::Frozen { arrivals, jump } => {
                (0..arrivals).for_each(|_| plant.arrive(0));
                plant.arrive(jump);
            }
            Phase::Pressure { oldest, dropped } => {
                plant.signals.oldest_wait = Nanos(oldest);
                plant.signals.rejected = dropped;
            }
            Phase::ReportedDemand { offered, demand } => {
                plant.signals.offered = Rate(offered);
                plant.signals.demand = demand.map(Rate);
            }
            Phase::Spurious { questions } => (0..questions).for_each(|_| plant.poll()),
        }
    }
}

fn check_every(phases: &[Phase]) -> Result<(), TestCaseError> {
    for (name, policy) in every_policy() {
        let mut plant = Plant::new(policy);
        run(&mut plant, phases);
        prop_assert!(plant.violations.is_empty(), "{name}: {:?} in {phases:?}", plant.violations);
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_policy_keeps_the_policy_contract(phases in phases()) {
        check_every(&phases)?;
    }
}

/// Policies that follow the load.
fn following() -> Vec<(String, Box<dyn ThreadingPolicy>)> {
    every_policy().into_iter().filter(|(name, _)| !name.starts_with("static") && !name.starts_with("ipi")).collect()
}

fn sustains(setup: ThreadingSetup) -> f64 {
    curves().get(setup).map_or(f64::NAN, |curve| curve.max_load)
}

#[test]
fn policies_step_down_when_idle_and_up_again_for_a_burst() {
    for (name, policy) in following() {
        let mut plant = Plant::new(policy);
        let lowest = plant.policy.initial();
        if plant.policy.choices() == [lowest] {
            continue;
        }
        plant.steady(13_000.0, 4_000);
        let crowd = plant.signals.current;
        assert!(sustains(crowd) > 13_000.0, "{name}: {crowd}");
        plant.signals.demand = Some(Rate(0.0));
        plant.wait(3_600 * SECOND);
        assert_eq!(plant.signals.current, lowest, "{name}: silence is news");
        let before = plant.now();
        plant.steady(13_000.0, 200);
        assert!(sustains(plant.signals.current) > 13_000.0, "{name}: {}", plant.signals.current);
        let (at, _) = *plant.switches.last().unwrap();
        // 64 arrivals are 5 ms; windows of 5 ms end up to 10 ms after the step.
        assert!(at.0 - before <= 10 * MS + MS, "{name}: after {} ns", at.0 - before);
        assert_eq!(plant.violations, [], "{name}");
    }
}

#[test]
fn a_stopped_clock_causes_no_switch() {
    for (name, policy) in following() {
        let mut plant = Plant::new(policy);
        // Far from every threshold, so that only the clock can cause a change.
        plant.steady(700.0, 2_000);
        let settled = plant.switches.len();
        for _ in 0..3 {
            // 100 ms of arrivals with the time at which the clock stopped.
            (0..70).for_each(|_| plant.arrive(0));
            plant.jump(100 * MS);
            plant.arrive(0);
            plant.steady(700.0, 300);
        }
        // `utune` with 50 entries has no clear window meanwhile, and continues afterwards like the
        // others.
        assert_eq!(plant.switches.len(), settled, "{name}: {:?}", &plant.switches[settled..]);
        assert_eq!(plant.violations, [], "{name}");
    }
}

#[test]
fn equal_stamps_have_a_finite_rate() {
    for (name, policy) in every_policy() {
        let mut plant = Plant::new(policy);
        (0..1_000).for_each(|_| plant.arrive(0));
        assert!(plant.switches.is_empty() || name.starts_with("ipi"), "{name}");
        // A poll that reads sixteen requests and stamps them alike.
        for _ in 0..100 {
            plant.wait(MS);
            (0..16).for_each(|_| plant.arrive(0));
        }
        assert_eq!(plant.violations, [], "{name}");
    }
}

#[test]
fn no_policy_steps_down_during_rejections_or_queueing() {
    for (name, policy) in following() {
        let mut plant = Plant::new(policy);
        plant.steady(13_000.0, 4_000);
        let (crowd, switches) = (plant.signals.current, plant.switches.len());
        for _ in 0..1_000 {
            // Admission rejects most requests: only 130 per second arrive.
            plant.signals.rejected = 1;
            plant.arrive(SECOND / 130);
        }
        let kept = |plant: &Plant| sustains(plant.signals.current) >= sustains(crowd);
        assert!(kept(&plant), "{name}: {:?}", &plant.switches[switches..]);
        plant.signals.oldest_wait = Nanos::from_millis(3);
        plant.wait(100 * MS);
        assert!(kept(&plant), "{name}: {:?}", &plant.switches[switches..]);
        assert_eq!(plant.violations, [], "{name}");
    }
}

/// Credits hide demand: clients send slightly less than the setup sustains.
fn locked_in(reports_demand: bool) -> ThreadingSetup {
    let choice: PolicyChoice = "leeward".parse().unwrap();
    let params = choice.policy.params(&[("fanout", leeward_core::params::RawParam::Text("sync".into()))]).unwrap();
    let mut plant = Plant::new(choice.policy.build(&params, &environment()).unwrap());
    plant.steady(500.0, 1_000);
    assert_eq!(plant.signals.current.to_string(), "SIP1");
    let from = plant.now();
    while plant.now() < from + 100 * MS {
        let admitted = (sustains(plant.signals.current) * 0.45).min(12_000.0);
        let held_back = admitted < 12_000.0;
        if reports_demand {
            plant.signals.offered = Rate(12_000.0);
            plant.signals.rejected = u64::from(held_back);
        } else {
            plant.signals.offered = Rate(admitted);
        }
        plant.arrive((SECOND as f64 / admitted) as u64);
    }
    assert_eq!(plant.violations, []);
    plant.signals.current
}

#[test]
fn offered_demand_makes_a_policy_leave_a_small_pool() {
    assert!(sustains(locked_in(true)) >= 12_000.0);
}

#[test]
fn canary_admitted_demand_keeps_a_pool_small() {
    assert!(sustains(locked_in(false)) < 12_000.0, "a policy that is told what was admitted must stay stuck here");
}

fn violations_of(mistake: Defect) -> Vec<Violation> {
    let choice: PolicyChoice = "utune".parse().unwrap();
    let inner = choice.policy.build(&choice.policy.params(&[]).unwrap(), &environment()).unwrap();
    let mut plant = Plant::new(Box::new(DefectivePolicy { inner, defect: mistake, polls: 0 }));
    for round in 0..4 {
        plant.steady(13_000.0, 500);
        plant.signals.oldest_wait = Nanos::from_millis(10);
        plant.steady(200.0, 100);
        plant.signals.oldest_wait = Nanos::ZERO;
        (0..100).for_each(|_| plant.arrive(0));
        if mistake != Defect::PastTimeout {
            plant.wait(round * SECOND);
        }
    }
    plant.violations
}

#[test]
fn defective_policies_are_caught() {
    let has = |defect, expected: fn(&Violation) -> bool| {
        let violations = violations_of(defect);
        assert!(violations.iter().any(expected), "{defect:?}: {violations:?}");
    };
    has(Defect::UnknownSetup, |violation| matches!(violation, Violation::Outside(_)));
    has(Defect::Repeats, |violation| matches!(violation, Violation::Same(_)));
    has(Defect::Infinite, |violation| matches!(violation, Violation::Rate(_)));
    has(Defect::PastTimeout, |violation| matches!(violation, Violation::Timeout(_) | Violation::EndlessPolls(_)));
    has(Defect::Restarts, |violation| matches!(violation, Violation::Frozen(_)));
    has(Defect::StepsDown, |violation| matches!(violation, Violation::StepDown(_)));
}

#[test]
fn canary_a_policy_that_ignores_signals_stays_in_the_setup_of_the_peak() {
    let choice: PolicyChoice = "utune".parse().unwrap();
    let inner = choice.policy.build(&choice.policy.params(&[]).unwrap(), &environment()).unwrap();
    assert_eq!(inner.poll_schedule(), PollSchedule::Arrivals(5));
    let mut plant = Plant::new(Box::new(DefectivePolicy { inner, defect: Defect::IgnoresSilence, polls: 0 }));
    plant.steady(13_000.0, 500);
    plant.wait(3_600 * SECOND);
    assert_ne!(plant.signals.current, plant.policy.initial());
}
