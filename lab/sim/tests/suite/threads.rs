//! Tiers compared with queueing theory: without costs, a threading model is a queue that can be
//! computed by hand.

use crate::common::queueing::{erlang_c, pollaczek_khinchine};
use crate::common::tier::{config, draw, free, run};
use leeward_core::units::{Nanos, Time};
use leeward_outcome::Distribution;
use leeward_sim::config::{Arrivals, SimConfig};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::Gather;
use leeward_sim::threads::presets::preset;
use leeward_workload::ArrivalStream;
use leeward_workload::rng::{Purpose, Rng};

/// A queue with `servers` and the hold times of the tier's requests, in twenty lines: the
/// percentiles of the same requests.
fn queue(config: &SimConfig, servers: usize) -> leeward_outcome::Percentiles {
    let tier = config.tier.as_ref().unwrap();
    let mut begin = Rng::new(config.seed, Purpose::Service);
    let mut leaf = Rng::new(config.seed, Purpose::Leaves);
    let mut free = vec![Time::ZERO; servers];
    let mut latency = Distribution::new();
    for (at, _) in ArrivalStream::new(&config.workload, config.seed) {
        if at > Time::ZERO + config.duration {
            break;
        }
        let hold = config.workload.service.draw(&mut begin) + tier.leaves.service.draw(&mut leaf) + tier.resume;
        let server = free.iter_mut().min().unwrap();
        *server = at.max(*server) + hold;
        let end = *server;
        if end >= Time::ZERO + config.warmup && end <= Time::ZERO + config.duration {
            latency.record(end.since(at));
        }
    }
    latency.percentiles()
}

#[test]
fn a_sync_in_line_tier_is_a_queue_with_as_many_servers_as_threads() {
    for wait in ["B", "P"] {
        for (threads, load) in [(1, 0.7), (2, 0.8), (8, 0.9)] {
            let mut tier = free(&format!("SI{wait}{threads}"), ServiceTime::Exponential(Nanos::from_micros(500)));
            tier.resume = Nanos::from_micros(20);
            let rate = load * f64::from(threads) / 550e-6;
            let begin = ServiceTime::Constant(Nanos::from_micros(30));
            let config = config(tier, begin, Arrivals::Poisson, rate, 50_000.0, 3);
            let (latency, expected) = (run(&config).latency, queue(&config, threads as usize));
            assert_eq!(latency, expected, "SI{wait}{threads}");
        }
    }
}

#[test]
fn a_sync_dispatched_tier_is_a_queue_with_as_many_servers_as_workers() {
    for wait in ["B", "P"] {
        let tier = free(&format!("SD{wait}1-4"), ServiceTime::Exponential(Nanos::from_micros(500)));
        let begin = ServiceTime::Constant(Nanos::from_micros(50));
        let config = config(tier, begin, Arrivals::Poisson, 0.85 * 4.0 / 550e-6, 50_000.0, 5);
        assert_eq!(run(&config).latency, queue(&config, 4), "SD{wait}1-4");
    }
}

#[test]
fn the_mean_wait_matches_erlang_c() {
    let tier = free("SIB4", ServiceTime::Constant(Nanos(0)));
    let begin = ServiceTime::Exponential(Nanos::from_micros(100));
    let report = run(&config(tier, begin, Arrivals::Poisson, 0.8 * 4.0 / 100e-6, 400_000.0, 11));
    let wait_us = report.waiting.unwrap().mean_ns / 1e3;
    let expected = erlang_c(4, 3.2) * 100.0 / (4.0 - 3.2);
    assert!((wait_us / expected - 1.0).abs() < 0.04, "{wait_us} us, Erlang {expected}");
}

#[test]
fn an_async_in_line_tier_waits_for_the_cpu_alone() {
    for setup in ["AIB1-0-1", "AIP1-0-1"] {
        let tier = free(setup, ServiceTime::Constant(Nanos::from_millis(2)));
        let begin = ServiceTime::Exponential(Nanos::from_micros(100));
        let report = run(&config(tier, begin, Arrivals::Poisson, 7_000.0, 400_000.0, 7));
        let wait_us = report.waiting.unwrap().mean_ns / 1e3;
        let expected = pollaczek_khinchine(0.7, 100.0, 1.0);
        assert!((wait_us / expected - 1.0).abs() < 0.05, "{setup}: {wait_us} us, theory {expected}");
        let mean_us = report.latency.mean_ns / 1e3;
        assert!((mean_us - wait_us - 100.0 - 2_000.0).abs() < 3.0, "{setup}: {mean_us}");
    }
}

#[test]
fn leaves_on_one_cpu_are_one_queue_for_all_calls() {
    let mut tier = free("AIP1-0-1", ServiceTime::Constant(Nanos::from_micros(50)));
    (tier.leaves.count, tier.leaves.host_call) = (4, Nanos::from_micros(25));
    assert!((tier.capacity(Nanos::ZERO).0 / 10_000.0 - 1.0).abs() < 0.01, "{:?}", tier.capacity(Nanos::ZERO));
    let report = run(&config(tier, ServiceTime::Constant(Nanos(0)), Arrivals::Poisson, 7_000.0, 400_000.0, 7));
    // The four calls of a request are one customer of that queue, and the request waits for the
    // last of them.
    let expected = pollaczek_khinchine(0.7, 100.0, 0.0) + 100.0 + 50.0;
    let mean_us = report.latency.mean_ns / 1e3;
    assert!((mean_us / expected - 1.0).abs() < 0.03, "{mean_us} us, theory {expected}");
}

/// 99th percentiles of a thread that is held 0.55 ms (sigma 0.1) per request, without other costs:
/// results of a queue simulation outside of this repository, in ms.
const HOLD_TIME_P99: &[(&str, Arrivals, f64, f64)] = &[
    ("SIP1", Arrivals::Constant, 64.0, 0.69),
    ("SIP1", Arrivals::Constant, 512.0, 0.69),
    ("SIP1", Arrivals::Constant, 1_500.0, 0.70),
    ("SIP1", Arrivals::Poisson, 20.0, 0.73),
    ("SIP1", Arrivals::Poisson, 64.0, 0.96),
    ("SIP1", Arrivals::Poisson, 256.0, 1.18),
    ("SIP1", Arrivals::Poisson, 512.0, 1.57),
    ("SIP1", Arrivals::Poisson, 1_000.0, 2.77),
    ("SIP1", Arrivals::Poisson, 1_500.0, 7.38),
    ("SIP2", Arrivals::Poisson, 512.0, 0.83),
    ("SIP2", Arrivals::Poisson, 1_000.0, 1.02),
    ("SIP2", Arrivals::Poisson, 1_500.0, 1.24),
    ("SIP3", Arrivals::Poisson, 1_000.0, 0.73),
    ("SIP3", Arrivals::Poisson, 1_500.0, 0.84),
    ("SIP4", Arrivals::Poisson, 1_500.0, 0.71),
    ("SIP8", Arrivals::Poisson, 1_500.0, 0.69),
];

#[test]
fn poisson_arrivals_queue_where_constant_ones_do_not() {
    for (setup, arrivals, rate, expected) in HOLD_TIME_P99 {
        let leaf = ServiceTime::Lognormal { mean: Nanos::from_micros(550), sigma: 0.1 };
        let config = config(free(setup, leaf), ServiceTime::Constant(Nanos(0)), *arrivals, *rate, 60_000.0, 1);
        let p99_ms = run(&config).latency.p99.as_micros_f64() / 1e3;
        assert!((p99_ms / expected - 1.0).abs() < 0.10, "{setup} at {rate}/s, {arrivals:?}: {p99_ms} ms, {expected}");
    }
}

#[test]
fn pollers_share_their_cpus_with_those_they_wake() {
    // Three pollers on two CPUs, and a sleeping thread per request: each woken thread gets a CPU
    // within about a slice per wake-up, even without other events for a long time.
    for (threads, cpus) in [(1, 1), (2, 1), (3, 2), (50, 36)] {
        let mut tier = free(&format!("SIP{threads}"), ServiceTime::Constant(Nanos::from_micros(300)));
        tier.cpus = cpus;
        tier.gather = Gather::ForkJoin;
        tier.costs = preset("grpc").unwrap();
        let most = tier.costs.slice.as_secs_f64() * 4.0 * (1.0 + f64::from(threads) / f64::from(cpus));
        let config = config(tier, ServiceTime::Constant(Nanos(1_000)), Arrivals::Constant, 20.0, 400.0, 2);
        let max = run(&config).latency.max.as_secs_f64();
        assert!(max < most, "{threads} pollers on {cpus} CPUs: {max} s, {most} s would be explained by slices");
    }
}

/// All seeds, or the one to reproduce.
#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration of the simulator
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=400).collect(),
    }
}

#[test]
fn random_tiers_pass_the_conservation_check_and_are_deterministic() {
    for seed in seeds() {
        let config = draw(seed);
        let description = format!("LEEWARD_SWARM_SEED={seed}: {:?}", config.tier);
        let report = std::panic::catch_unwind(|| run(&config)).unwrap_or_else(|_| panic!("{description}"));
        assert!(report.totals.completed > 0, "{description}");
        if seed % 8 == 0 {
            assert_eq!(run(&config), report, "{description}");
        }
    }
}
