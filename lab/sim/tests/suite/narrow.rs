//! `auto` where there is little room: an objective that the round trip nearly takes, a slow
//! resource behind many cores, a client that stands for all. Each of these once left it a fraction
//! of what the server can do.

use crate::common::{disk, run};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Application, Scheduling, Segment, SimConfig};
use leeward_sim::service_time::ServiceTime;

/// Requests in time, per second.
fn in_time(config: &SimConfig, controller: &str) -> f64 {
    run(config, controller).counts.good as f64 / (config.duration - config.warmup).as_secs_f64()
}

/// Ten cores, a service of 50 us, and a round trip of more than half of the objective. They can do
/// 193 k/s.
fn long_way(clients: u32, demand: f64) -> SimConfig {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(50)), demand);
    (config.network.rtt, config.slo) = (Nanos::from_micros(250), Nanos::from_micros(450));
    config.workload.clients = clients;
    (config.warmup, config.duration) = (Nanos::from_millis(300), Nanos::from_millis(800));
    config
}

#[test]
fn a_round_trip_may_take_most_of_the_objective() {
    for (clients, demand) in [(100, 1.5), (1_000, 1.5), (1_000, 3.0), (3_000, 1.5)] {
        let config = long_way(clients, demand);
        let (ours, other) = (in_time(&config, "auto"), in_time(&config, "breakwater"));
        println!("{clients} clients, {demand} x: {ours:.0} in time, breakwater {other:.0}");
        assert!(ours > 0.9 * other, "{clients} clients, {demand} x: {ours} of {other}");
    }
}

/// Two cores, and a service that takes a fifth of what the round trip leaves of the objective. Some
/// requests are late by their own service, others by a short wait and their service together.
#[test]
fn a_service_may_take_a_good_part_of_the_objective() {
    for demand in [0.8, 0.95, 1.2] {
        let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand);
        config.server.cores = 2;
        config.workload.demand[0].rate = Rate(170_000.0 * demand);
        (config.network.rtt, config.slo) = (Nanos::from_micros(10), Nanos::from_micros(60));
        (config.warmup, config.duration) = (Nanos::from_millis(500), Nanos::from_secs(2));
        let (ours, other) = (in_time(&config, "auto"), in_time(&config, "breakwater"));
        println!("{demand} x: {ours:.0} in time, breakwater {other:.0}");
        assert!(ours > 0.95 * other, "{demand} x: {ours} of {other}");
    }
}

/// Four cores, a service of half of the objective, and a round trip, which is a tick, of a tenth of
/// it: hardly one tick in four has a rejection where every second request is rejected.
#[test]
fn a_tick_may_be_much_shorter_than_a_service() {
    for demand in [0.9, 1.0, 1.2, 1.5] {
        let mut config = SimConfig::testbed(ServiceTime::Constant(Nanos::from_millis(1)), demand);
        config.server.cores = 4;
        config.workload.clients = 1_000;
        config.workload.demand[0].rate = Rate(4_000.0 * demand);
        (config.network.rtt, config.slo) = (Nanos::from_micros(100), Nanos::from_micros(2_200));
        (config.warmup, config.duration) = (Nanos::from_secs(2), Nanos::from_secs(6));
        let (ours, other) = (in_time(&config, "auto"), in_time(&config, "breakwater"));
        println!("{demand} x: {ours:.0} in time, breakwater {other:.0}");
        assert!(ours > 0.95 * other, "{demand} x: {ours} of {other}");
    }
}

#[test]
fn an_overload_that_ends_leaves_nothing_behind() {
    let mut config = long_way(1_000, 0.8);
    let low = config.workload.demand[0].rate;
    let after = |millis, rate| Segment { from: Nanos::from_millis(millis), rate };
    config.workload.demand = vec![after(0, low), after(100, Rate(low.0 * 2.5)), after(400, low)];
    (config.warmup, config.duration) = (Nanos::from_millis(900), Nanos::from_millis(1_400));
    let served = in_time(&config, "auto");
    assert!(served > 0.85 * low.0, "{served} of {}", low.0);
}

/// All requests wait for a disk of 80 us, which does 12,500 a second.
#[test]
fn a_disk_may_stand_behind_many_cores() {
    for cores in [10, 32, 64] {
        let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(100)), 1.0);
        config.server.cores = cores;
        config.application = disk();
        config.workload.demand[0].rate = Rate(100_000.0);
        (config.warmup, config.duration) = (Nanos::from_secs(2), Nanos::from_secs(4));
        let served = in_time(&config, "auto");
        assert!(served > 0.8 * 12_500.0, "{cores} cores: {served}");
    }
}

/// Two cores under an allocator, a service of 1 us: a rejection takes as long, so that cores may
/// have nothing else to do, and no response ends the law's iteration.
#[test]
fn rejections_alone_do_not_lock_out() {
    for seed in [1, 3, 101, 149] {
        let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(1)), 1.0);
        config.seed = seed;
        config.server.cores = 2;
        config.server.scheduling = Some(Scheduling::new("delay"));
        (config.network.rtt, config.slo) = (Nanos::from_micros(5), Nanos::from_micros(60));
        config.workload.clients = 1_000;
        config.workload.demand[0].rate = Rate(1_446_654.0);
        (config.warmup, config.duration) = (Nanos::from_millis(150), Nanos::from_millis(250));
        let served = in_time(&config, "auto");
        assert!(served > 300_000.0, "seed {seed}: {served}");
    }
}

#[test]
fn one_client_may_stand_for_all() {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
    config.server.cores = 32;
    (config.network.rtt, config.slo) = (Nanos::from_micros(100), Nanos::from_micros(1_000));
    config.workload.clients = 1;
    config.workload.demand[0].rate = Rate(1_500_000.0);
    (config.warmup, config.duration) = (Nanos::from_millis(300), Nanos::from_millis(500));
    let served = in_time(&config, "auto");
    assert!(served > 0.95 * 1_500_000.0, "{served}");
}

/// A resource of 1.6 us, taken by each request between two pieces of work on the only core.
#[test]
fn a_resource_may_be_as_short_as_the_core() {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(2)), 1.0);
    config.server.cores = 1;
    config.application = disk();
    (config.network.rtt, config.slo) = (Nanos::from_micros(10), Nanos::from_micros(60));
    config.workload.clients = 3_000;
    config.workload.demand[0].rate = Rate(797_000.0);
    (config.warmup, config.duration) = (Nanos::from_millis(300), Nanos::from_millis(500));
    let (ours, other) = (in_time(&config, "auto"), in_time(&config, "breakwater"));
    assert!(ours > 0.8 * other, "{ours} of {other}");
}

/// A lock that a fifth of the requests need for 0.7 of their work: they ask 3.5 times what it can
/// do, and the others find 32 cores half idle.
#[test]
fn a_lock_costs_those_nothing_who_do_not_need_it() {
    let mut config = SimConfig::testbed(ServiceTime::parse("lognormal:50us:1").unwrap(), 1.0);
    config.server.cores = 32;
    config.application = Application::one_lock(0.2, 0.7);
    (config.network.rtt, config.slo) = (Nanos::from_micros(100), Nanos::from_micros(750));
    config.workload.clients = 1_000;
    config.workload.demand[0].rate = Rate(494_500.0);
    (config.warmup, config.duration) = (Nanos::from_millis(800), Nanos::from_millis(1_200));
    let (served, free) = (in_time(&config, "auto"), 0.8 * 494_500.0);
    assert!(served > 0.95 * free, "{served} of {free}");
}
