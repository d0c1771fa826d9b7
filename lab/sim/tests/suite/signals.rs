//! Cost of the choice of signal if cores are the bottleneck. Does not contain locks.

use leeward_core::params::{Params, RawParam};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::Segment;
use leeward_sim::{SimConfig, service_time::ServiceTime, simulate};

/// Goodput in requests per second, with the testbed's impatient clients.
fn goodput(name: &str, demand: f64) -> f64 {
    let config = SimConfig {
        warmup: Nanos::from_millis(500),
        duration: Nanos::from_secs(1),
        ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
    };
    goodput_of(&config, name, &[("client_delay", RawParam::Text("10us".into()))])
}

fn goodput_of(config: &SimConfig, name: &str, params: &[(&str, RawParam)]) -> f64 {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(name).unwrap();
    let report = simulate(config, algorithm, &algorithm.params(params).unwrap()).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    report.counts.good as f64 / report.measured.as_secs_f64()
}

/// The papers leave the choice to the operator, and the efficiency signal loses a quarter here.
#[test]
fn auto_matches_the_delay_signal_when_cores_are_the_bottleneck() {
    for demand in [0.9, 1.4, 2.0] {
        let (delay, auto) = (goodput("breakwater", demand), goodput("auto", demand));
        println!("at {demand}x: {delay:.0}/s by delay, {auto:.0}/s automatically");
        assert!(auto >= 0.95 * delay, "at {demand}x: {auto:.0}/s instead of {delay:.0}/s");
    }
}

/// A pool that grows when a core is idle by chance causes rejections. A rejection costs half as
/// much as a request over loopback TCP (`real-overall`).
#[test]
fn auto_keeps_goodput_on_one_core_with_expensive_messages() {
    for demand in [1.4, 2.0] {
        let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
        config.server.cores = 1;
        config.server.costs.receive = Nanos::from_micros(2);
        config.server.costs.send = Nanos(6_300);
        config.network.rtt = Nanos::from_micros(20);
        config.slo = Nanos::from_micros(300);
        let rate = Rate(config.server.capacity(Nanos::from_micros(10)).0 * demand);
        config.workload.demand = vec![Segment { from: Nanos::ZERO, rate }];
        config = SimConfig { warmup: Nanos::from_millis(500), duration: Nanos::from_secs(1), ..config };
        let (delay, auto) = (goodput_of(&config, "breakwater", &[]), goodput_of(&config, "auto", &[]));
        println!("at {demand}x: {delay:.0}/s by delay, {auto:.0}/s automatically");
        assert!(auto >= 0.94 * delay, "at {demand}x: {auto:.0}/s instead of {delay:.0}/s");
    }
}

/// Receiving and spawning are work. At 100 ns of service time without a network they take longer
/// than any target, but are no queueing delay.
#[test]
fn receive_and_spawn_costs_are_no_queueing_delay() {
    let registry = leeward_controllers::builtin();
    for name in ["breakwater", "auto"] {
        let algorithm = registry.find(name).unwrap();
        let mut config = SimConfig::testbed(ServiceTime::Constant(Nanos(100)), 0.1);
        config.network.rtt = Nanos::ZERO;
        config.workload.clients = 100;
        // As `leeward run` derives it: ten times service and round trip.
        config.slo = Nanos(1_000);
        config = SimConfig { warmup: Nanos::from_millis(2), duration: Nanos::from_millis(6), ..config };
        let report = simulate(&config, algorithm, &Params::default()).unwrap();
        assert_eq!(report.violations, Vec::<String>::new(), "{name}");
        let served = report.counts.completed as f64 / report.counts.offered as f64;
        assert!(served > 0.9, "{name}: {served}");
    }
}
