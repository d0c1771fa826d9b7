//! How fast the simulator is: events and simulated requests per second of wall time on one core, on the papers'
//! 1,000-client testbed. `cargo bench -p leeward-sim`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leeward_control::registry::Registry;
use leeward_control::units::Nanos;
use leeward_sim::{SimConfig, service::Service, simulate};

fn simulated(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulated");
    group.sample_size(10);
    for (controller, demand) in [("none", 0.9), ("breakwater", 0.9), ("breakwater", 2.0), ("dagor", 2.0), ("seda", 2.0)]
    {
        let algorithm = Registry::builtin().find(controller).unwrap().clone();
        let params = algorithm.params(&[]).unwrap();
        let config = SimConfig {
            warmup: Nanos::from_millis(10),
            duration: Nanos::from_millis(500),
            ..SimConfig::testbed(Service::Exponential(Nanos::from_micros(10)), demand)
        };
        let report = simulate(&config, &algorithm, &params).unwrap();
        for (unit, elements) in [("events", report.events), ("requests", report.totals.offered)] {
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

criterion_group!(benches, simulated);
criterion_main!(benches);
