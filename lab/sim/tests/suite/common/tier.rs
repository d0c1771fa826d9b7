//! Tiers for tests: one with threads at no cost, and helpers to run it.

use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Arrivals, NetworkModel, Segment, SimConfig, Workload};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::threads::model::{
    Gather, LeafSelection, Leaves, SecondCalls, Sharing, SlowLeaf, TailModel, ThreadCosts, Tier,
};
use leeward_sim::threads::presets::{NAMES, preset};
use leeward_sim::{RunOutcome, simulate};
use leeward_workload::rng::{Purpose, Rng};

/// A tier under `setup` without costs besides computing and its one leaf, which serves all calls at
/// once.
pub(crate) fn free(setup: &str, leaf: ServiceTime) -> Tier {
    let none = Nanos::ZERO;
    Tier {
        cpus: 64,
        costs: ThreadCosts::free(),
        resume: none,
        leaves: Leaves {
            count: 1,
            selection: LeafSelection::All,
            service: leaf,
            servers: 1_024,
            per_call: none,
            host_call: none,
            rtt: none,
            tails: TailModel::default(),
        },
        gather: Gather::Own,
        front: Sharing::Shared,
        links: Sharing::Shared,
        threading: setup.parse().unwrap(),
        policy: None,
    }
}

/// A run of `tier` at a rate, with a number of measured requests.
pub(crate) fn config(
    tier: Tier,
    begin: ServiceTime,
    arrivals: Arrivals,
    rate: f64,
    requests: f64,
    seed: u64,
) -> SimConfig {
    let length = Nanos::from_secs_f64(requests / rate);
    let warmup = length.scale(0.05);
    let testbed = SimConfig::testbed(begin, 1.0);
    SimConfig {
        network: NetworkModel { rtt: Nanos::ZERO, jitter: Nanos::ZERO },
        workload: Workload {
            clients: 1,
            arrivals,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
            ..testbed.workload.clone()
        },
        tier: Some(Box::new(tier)),
        warmup,
        duration: warmup + length,
        seed,
        ..testbed
    }
}

/// Runs `config` without control and checks the invariants.
pub(crate) fn run(config: &SimConfig) -> RunOutcome {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let report = simulate(config, &none, &none.params(&[]).unwrap()).unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    report
}

/// A random tier with costs, random load and leaves, drawn from `seed`.
pub(crate) fn draw(seed: u64) -> SimConfig {
    let mut rng = Rng::new(seed, Purpose::Clients);
    let setup = setup(&mut rng);
    let mut tier = free(&setup, ServiceTime::Exponential(Nanos::from_micros(1 + rng.below(300))));
    tier.cpus = 1 + rng.below(8) as u32;
    tier.costs = preset(NAMES[rng.below(2) as usize]).unwrap();
    if rng.below(3) == 0 {
        tier.costs.slice = Nanos::from_micros(1 + rng.below(100));
        tier.costs.preempt = Nanos::from_micros(rng.below(50));
        tier.costs.cold_cache = Nanos::from_micros(rng.below(10));
    }
    tier.resume = Nanos(rng.below(20_000));
    tier.leaves.count = 1 + rng.below(8) as u16;
    tier.leaves.servers = 1 + rng.below(4) as u16;
    tier.leaves.rtt = Nanos(rng.below(50_000));
    if rng.below(2) == 0 {
        let replicas = 1 + rng.below(u64::from(tier.leaves.count)) as u16;
        tier.leaves.selection = LeafSelection::Hash { replicas, writes: rng.unit() };
    }
    tier.gather = if rng.below(2) == 0 { Gather::Own } else { Gather::ForkJoin };
    tails(&mut tier, &mut rng);
    tier.leaves.host_call = Nanos(rng.below(2) * rng.below(5_000));
    let sharing = [Sharing::Sharded, Sharing::Shared];
    (tier.front, tier.links) = (sharing[rng.below(2) as usize], sharing[rng.below(2) as usize]);
    let begin = ServiceTime::Exponential(Nanos::from_micros(1 + rng.below(100)));
    let rate = tier.capacity(begin.mean()).0 * (0.05 + 1.2 * rng.unit());
    let arrivals = if rng.below(3) == 0 { Arrivals::Constant } else { Arrivals::Poisson };
    let mut config = config(tier, begin, arrivals, rate, 2_000.0, seed);
    config.workload.clients = 1 + rng.below(20) as u32;
    config.network.rtt = Nanos(rng.below(30_000));
    config
}

/// Random leaves that are late, reject calls, or have copies for second calls.
fn tails(tier: &mut Tier, rng: &mut Rng) {
    let leaves = &mut tier.leaves;
    if rng.below(2) == 0 {
        // A late reply blocks a sync thread: on average for no longer than other replies do.
        let (leaf, share) = (rng.below(u64::from(leaves.count)) as u16, 0.1 * rng.unit());
        leaves.tails.slow = Some(SlowLeaf { leaf, share, delay: Nanos::from_micros(rng.below(1_000)) });
    }
    if tier.gather == Gather::Own && rng.below(2) == 0 {
        leaves.tails.reject_after = Some(Nanos::from_micros(rng.below(1_000)));
    }
    if leaves.selection == LeafSelection::All && rng.below(2) == 0 {
        let copies = 1 + rng.below(3) as u16;
        leaves.count = leaves.count.div_ceil(copies) * copies;
        leaves.tails.copies = copies;
        if copies > 1 && tier.gather == Gather::Own {
            leaves.tails.second_calls = SecondCalls::Budgeted;
        }
    }
}

/// A random setup, in any of the eight models, or polling for a limited time.
fn setup(rng: &mut Rng) -> String {
    let pool = |rng: &mut Rng| 1 + rng.below(6);
    let wait = ["B", "P", "P"][rng.below(3) as usize];
    let spin = if wait == "P" && rng.below(2) == 0 { "@16us" } else { "" };
    let (network, worker, response) = (pool(rng), pool(rng), pool(rng));
    match rng.below(4) {
        0 => format!("SI{wait}{network}{spin}"),
        1 => format!("SD{wait}{network}-{worker}{spin}"),
        2 => format!("AI{wait}{network}-0-{response}{spin}"),
        _ => format!("AD{wait}{network}-{worker}-{response}{spin}"),
    }
}
