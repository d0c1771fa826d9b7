//! Bottlenecks outside of the server's queues: a disk, a downstream server, pauses, a quota. Checks
//! their cost and the accounting.

use crate::common::{disk, run};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{
    Application, LockKind, LockModel, LockPolicy, MethodVisibility, Path, Pauses, Quota, SimConfig, SlowPeriod, Step,
};
use leeward_sim::rng::{Purpose, Rng};
use leeward_sim::service_time::ServiceTime;

fn config(rate: f64) -> SimConfig {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(100)), 1.0);
    config.workload.demand[0].rate = Rate(rate);
    config.workload.clients = 100;
    (config.warmup, config.duration, config.audit) = (Nanos::from_millis(100), Nanos::from_millis(1_100), true);
    config
}

#[test]
fn a_wait_without_a_core_leaves_it_to_other_requests() {
    let plain = run(&config(10_000.0), "none");
    let waiting = run(&SimConfig { application: disk(), ..config(10_000.0) }, "none");
    let costs = 1.765 / 100.0;
    let ratio = waiting.cpu_utilization / plain.cpu_utilization;
    assert!((ratio / ((0.2 + costs) / (1.0 + costs)) - 1.0).abs() < 0.05, "{ratio} of the CPU time");
    assert!(waiting.locks[0].utilization.unwrap() > 0.75, "10,000 times 80 us: {:?}", waiting.locks);
}

#[test]
fn a_slow_period_slows_service_only_while_it_lasts() {
    let slow = |from: u64, until: u64| SlowPeriod {
        start: Nanos::from_millis(from),
        end: Nanos::from_millis(until),
        factor: 4.0,
    };
    let served = |slow| {
        let mut config = SimConfig { application: disk(), ..config(40_000.0) };
        config.server.slow = slow;
        run(&config, "none").counts.completed as f64
    };
    let always = served(None);
    assert!((served(Some(slow(0, 2_000))) / always - 0.25).abs() < 0.03);
    assert!((served(Some(slow(100, 600))) / always - 0.625).abs() < 0.03, "half of the measured second");
    assert!((served(Some(slow(1_100, 2_000))) / always - 1.0).abs() < 0.01);
}

#[test]
fn pauses_and_cpu_quotas_reduce_the_capacity() {
    let served = |pauses, quota| {
        let mut config = config(500_000.0);
        (config.server.pauses, config.server.quota) = (pauses, quota);
        let outcome = run(&config, "breakwater");
        (outcome.counts.completed as f64, config.server.available())
    };
    let (all, _) = served(None, None);
    let pauses = Pauses { interval: Nanos::from_millis(50), length: Nanos::from_millis(10) };
    let quota = Quota { period: Nanos::from_millis(20), cpu: Nanos::from_millis(100) };
    for (what, (served, available)) in [("pauses", served(Some(pauses), None)), ("quota", served(None, Some(quota)))] {
        let share = served / all;
        assert!((0.7 * available..1.02 * available).contains(&share), "{what}: {share} of {available}");
    }
}

/// A pause as long as the objective leaves a queue, which is worked off below the capacity. `edge`
/// rejects what is late, and takes it for no overload.
#[test]
fn a_short_pause_is_no_overload() {
    for (demand, least) in [(100_000.0, 0.97), (140_000.0, 0.97), (155_000.0, 0.97), (170_000.0, 0.96)] {
        let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(3)), 1.0);
        (config.server.cores, config.workload.clients) = (1, 100);
        config.server.pauses = Some(Pauses { interval: Nanos::from_millis(15), length: Nanos::from_millis(1) });
        (config.workload.demand[0].rate, config.slo) = (Rate(demand), Nanos::from_micros(860));
        (config.warmup, config.duration) = (Nanos::from_millis(100), Nanos::from_secs(1));
        let outcome = run(&config, "edge");
        let share = outcome.counts.good as f64 / 0.9 / demand;
        println!("{demand}: {share} in time");
        assert!(share > least, "{demand}: {share} in time");
    }
}

/// Half of the requests wait for the disk, which can serve less than a third of them; the others
/// need only a core.
#[test]
fn requests_without_waits_are_not_limited_by_a_saturated_disk() {
    let served = |methods| {
        let free = Path { share: 0.5, steps: vec![Step::Work(1.0)] };
        let paths = vec![Path { share: 0.5, ..disk().paths[0].clone() }, free];
        let application = Application { paths, ..disk() };
        let mut config = SimConfig { application, ..config(80_000.0) };
        config.server.methods = methods;
        run(&config, "auto").counts.good as f64
    };
    let (known, unknown) = (served(MethodVisibility::Paths), served(MethodVisibility::Unknown));
    // The disk answers 12,500 in the second, and the others are 40,000. If the controller can't
    // tell them apart, one of the others is admitted per request at the disk.
    assert!(known > 0.95 * 52_500.0, "{known} in time");
    assert!(unknown < 0.6 * known, "{unknown} of {known}");
}

/// An unreachable objective: below the service time on cores, the disk's time, or the round trip.
/// `auto` still serves as many requests as the bottleneck can, late, for the whole run.
#[test]
fn an_unreachable_objective_causes_no_lock_out() {
    let cores = |rate| SimConfig { application: Application::default(), ..config(rate) };
    let waits = |rate| SimConfig { application: disk(), ..config(rate) };
    let constant = |config: SimConfig, slo: u64| {
        let mut config = config;
        config.workload.service = ServiceTime::Constant(Nanos::from_micros(100));
        config.slo = Nanos::from_micros(slo);
        config.window = Some(Nanos::from_millis(100));
        config
    };
    // Ten cores do 98 k/s, the disk 12.5 k/s.
    for (what, config, possible) in [
        ("half of what cores can do", constant(cores(49_000.0), 50), 49_000.0),
        ("all that cores can do", constant(cores(98_000.0), 50), 98_000.0),
        ("half of what the disk can do", constant(waits(6_000.0), 50), 6_000.0),
        ("twice what the disk can do", constant(waits(25_000.0), 50), 12_500.0),
        ("an objective less than a round trip", constant(cores(49_000.0), 5), 49_000.0),
    ] {
        let outcome = run(&config, "auto");
        let served = outcome.counts.completed as f64;
        println!("{what}: {served} of {possible}");
        assert_eq!(outcome.counts.good, 0, "{what}: nothing can be in time");
        assert!(served > 0.7 * possible, "{what}: {served} of {possible}");
        let least = outcome.windows.iter().map(|window| window.clients.counts.completed).min().unwrap();
        assert!(least > 0, "{what}: nothing for a whole window");
    }
}

/// Random steps with waits and locks, under every controller: the audit checks every lock and
/// session.
#[test]
fn random_paths_pass_the_conservation_check() {
    let registry = leeward_controllers::builtin();
    let names: Vec<&str> = registry.names().collect();
    for seed in 0..60u64 {
        let mut rng = Rng::new(seed, Purpose::Data);
        let mut path = || {
            let mut steps = Vec::new();
            let parts = 1 + rng.below(4);
            for part in 0..parts {
                let lock = (part < 2 && rng.below(2) == 0).then_some(part as usize);
                steps.extend(lock.map(Step::Acquire));
                let share = 1.0 / parts as f64;
                steps.push(if rng.below(2) == 0 { Step::Wait(share) } else { Step::Work(share) });
                steps.extend(lock.map(Step::Release));
            }
            steps
        };
        let paths = vec![Path { share: 0.4, steps: path() }, Path { share: 0.6, steps: path() }];
        let application = Application { locks: vec!["a".into(), "b".into()], paths };
        let mut config = SimConfig { application, seed, ..config(60_000.0) };
        config.duration = Nanos::from_millis(130);
        let acquire = [
            LockPolicy::Plain,
            LockPolicy::Try,
            LockPolicy::UnlessCongested { budget: Nanos::from_micros(500), recheck: true },
            LockPolicy::Timed { timeout: Nanos::from_micros(300) },
        ][seed as usize % 4];
        config.locks = LockModel { kind: if seed % 8 == 4 { LockKind::Spinlock } else { LockKind::Mutex }, acquire };
        if seed % 3 == 0 {
            config.server.pauses = Some(Pauses { interval: Nanos::from_millis(7), length: Nanos::from_millis(1) });
        }
        if seed % 5 == 0 {
            config.server.quota = Some(Quota { period: Nanos::from_millis(10), cpu: Nanos::from_millis(30) });
        }
        let name = names[seed as usize % names.len()];
        let first = run(&config, name);
        assert_eq!(first.counts.completed, run(&config, name).counts.completed, "{name}, seed {seed}");
    }
}
