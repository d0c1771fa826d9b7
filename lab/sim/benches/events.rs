//! Speed of the simulator: events and simulated requests per second of wall time on one core, on
//! the papers' 1,000-client testbed. `cargo bench -p leeward-sim`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_sim::config::{Costs, Scheduling, ServerModel};
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

fn simulated(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulated");
    group.sample_size(10);
    for (controller, demand) in [("none", 0.9), ("breakwater", 0.9), ("breakwater", 2.0), ("dagor", 2.0), ("seda", 2.0)]
    {
        let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
        let params = algorithm.params(&[]).unwrap();
        let config = SimConfig {
            warmup: Nanos::from_millis(10),
            duration: Nanos::from_millis(500),
            ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
        };
        let report = simulate(&config, &algorithm, &params).unwrap();
        for (unit, elements) in [("events", report.events.unwrap()), ("requests", report.totals.offered)] {
            group.throughput(Throughput::Elements(elements));
            group.bench_with_input(
                BenchmarkId::new(unit, format!("{controller} {demand}x")),
                &config,
                |bencher, config| {
                    bencher.iter(|| simulate(config, &algorithm, &params).unwrap());
                },
            );
        }
    }
    group.finish();
}

/// 32 cores under an allocator, 1 us of service time, full load, 2 ms of simulated time. The
/// poster's public simulator (Python) takes 33 s for it; a five-hundredth of that is 66 ms.
fn allocated(criterion: &mut Criterion) {
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let pairs = [("target", "10us"), ("beta", "8%"), ("alpha", "0.667%")];
    let params = algorithm.params(&pairs.map(|(name, text)| (name, RawParam::Text(text.into())))).unwrap();
    let server = ServerModel {
        cores: 32,
        costs: Costs { steal: Nanos(100), ..Costs::FREE },
        batch: 1,
        scheduling: Some(Scheduling::new("delay")),
        ..ServerModel::default()
    };
    let mut config = SimConfig::testbed(ServiceTime::Bimodal(Nanos(1_000)), 1.0);
    config.workload.demand[0].rate = server.capacity(Nanos(1_000));
    config.workload.clients = 300;
    config.network.rtt = Nanos::from_micros(30);
    let config = SimConfig {
        server,
        slo: Nanos::from_micros(310),
        warmup: Nanos::ZERO,
        duration: Nanos::from_millis(2),
        ..config
    };
    let mut group = criterion.benchmark_group("allocated");
    group.sample_size(10);
    group.bench_function("32 cores, 1 us, load 1, 2 ms", |bencher| {
        bencher.iter(|| simulate(&config, &algorithm, &params).unwrap());
    });
    group.finish();
}

criterion_group!(benches, simulated, allocated);
criterion_main!(benches);
