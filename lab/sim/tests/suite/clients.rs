//! Behaviour of clients besides their algorithm: pacing, and giving up on requests. Each request
//! still has exactly one end.

use leeward_core::units::Nanos;
use leeward_sim::config::ClientModel;
use leeward_sim::{RunOutcome, SimConfig, service_time::ServiceTime, simulate};

/// 20 clients of a server with one core at 10 us, measured from the beginning.
fn run(controller: &str, load: f64, clients: ClientModel) -> RunOutcome {
    let mut config = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), load);
    config.server.cores = 1;
    config.workload.clients = 20;
    config.workload.demand[0].rate.0 = config.server.capacity(Nanos::from_micros(10)).0 * load;
    let config =
        SimConfig { clients, warmup: Nanos::from_millis(1), duration: Nanos::from_millis(51), audit: true, ..config };
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let report = simulate(&config, &algorithm, &algorithm.params(&[]).unwrap()).unwrap();
    assert_eq!(report.violations, Vec::<String>::new(), "{controller}");
    assert!(report.totals.is_balanced(), "{controller}: {:?}", report.totals);
    report
}

#[test]
fn no_client_gets_a_response_after_its_timeout() {
    let timeout = Nanos::from_micros(300);
    for algorithm in leeward_controllers::builtin().algorithms() {
        let report = run(algorithm.name, 2.0, ClientModel { timeout: Some(timeout), ..ClientModel::default() });
        // The histogram's resolution is a thousandth.
        assert!(report.latency.max.0 <= timeout.0 + timeout.0 / 500, "{}: {:?}", algorithm.name, report.latency);
        assert!(report.totals.completed > 0, "{}: {:?}", algorithm.name, report.totals);
    }
    // Without control the queue is so long that nearly all clients give up on requests that the
    // server then executes in vain.
    let patient = run("none", 2.0, ClientModel::default());
    assert_eq!(patient.totals.timed_out, 0);
    let report = run("none", 2.0, ClientModel { timeout: Some(timeout), ..ClientModel::default() });
    assert!(report.totals.timed_out > report.totals.completed, "{:?}", report.totals);
    assert!(report.totals.completed + report.totals.timed_out <= report.totals.offered);
    assert!(report.latency.max < patient.latency.max);
}

#[test]
fn paced_clients_send_no_faster_than_they_may() {
    let pacing = Nanos::from_micros(500);
    for algorithm in leeward_controllers::builtin().algorithms() {
        let report = run(algorithm.name, 2.0, ClientModel { pacing, ..ClientModel::default() });
        let most = report.measured.0 / pacing.0 * 20 + 20;
        assert!(report.server.received <= most, "{}: {} of {most}", algorithm.name, report.server.received);
    }
    let report = run("none", 2.0, ClientModel { pacing, ..ClientModel::default() });
    assert!(report.server.received > 1_800, "that is what limits them: {}", report.server.received);
    // Far below the rate that pacing allows, pacing changes little.
    let (free, paced) =
        (ClientModel::default(), ClientModel { pacing: Nanos::from_micros(1), ..ClientModel::default() });
    let (free, paced) = (run("none", 0.3, free).totals, run("none", 0.3, paced).totals);
    assert_eq!(free.offered, paced.offered);
    assert!(paced.completed * 100 > free.completed * 99);
}
