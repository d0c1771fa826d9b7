//! Speed of the simulation of tiers: events and requests per second of wall time on one core, for
//! HDSearch's tier at the paper's scale.
//!
//! `cargo bench -p leeward-sim --bench threads`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{NetworkModel, Segment};
use leeward_sim::threads::model::{Gather, LeafSelection, Leaves, Sharing, TailModel, Tier};
use leeward_sim::threads::presets::preset;
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

fn tier(setup: &str) -> Tier {
    Tier {
        cpus: 36,
        costs: preset("grpc").unwrap(),
        resume: Nanos::from_micros(6),
        leaves: Leaves {
            count: 4,
            selection: LeafSelection::All,
            service: ServiceTime::Lognormal { mean: Nanos::from_micros(320), sigma: 0.1 },
            servers: 5,
            per_call: Nanos::ZERO,
            host_call: Nanos::ZERO,
            rtt: Nanos::from_micros(20),
            tails: TailModel::default(),
        },
        gather: Gather::ForkJoin,
        front: Sharing::Shared,
        links: Sharing::Shared,
        threading: setup.parse().unwrap(),
        policy: None,
    }
}

fn tiers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tiers");
    group.sample_size(10);
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let params = none.params(&[]).unwrap();
    for (setup, rate) in [("SIP1", 1_000.0), ("SDB1-50", 8_000.0), ("AIP1-0-1", 4_000.0), ("ADB1-4-4", 11_000.0)] {
        let testbed = SimConfig::testbed(ServiceTime::Constant(Nanos::from_micros(24)), 1.0);
        let mut config = SimConfig {
            tier: Some(Box::new(tier(setup))),
            network: NetworkModel::default(),
            warmup: Nanos::from_millis(10),
            duration: Nanos::from_secs_f64(20_000.0 / rate),
            ..testbed
        };
        config.workload.demand = vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }];
        let report = simulate(&config, &none, &params).unwrap();
        for (unit, elements) in [("events", report.events.unwrap()), ("requests", report.totals.offered)] {
            group.throughput(Throughput::Elements(elements));
            group.bench_with_input(BenchmarkId::new(unit, setup), &config, |bencher, config| {
                bencher.iter(|| simulate(config, &none, &params).unwrap());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, tiers);
criterion_main!(benches);
