//! The generator against a real server on loopback. No test asserts a speed: bounds are counts, and
//! lower bounds of time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Behaviour, Server};
use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, ClientVerdict, Gate, Submission};
use leeward_core::params::ParamError;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate, Time};
use leeward_load::report::RunEndReason;
use leeward_load::{LoadConfig, LoadError, Plan, Polling, RunResults, Schedule, run, run_scaled};
use leeward_rpc::wire::Regime;
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};

/// Builds client halves of an algorithm.
fn clients(name: &str) -> impl FnMut() -> Result<ClientParts, ParamError> {
    let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let environment = Environment::new(1, Nanos::from_micros(50), Nanos::from_millis(1_000));
    move || (algorithm.build_client)(&params, &environment)
}

fn open(connections: u32, rate: f64, milliseconds: u64) -> Plan {
    let workload = Workload {
        clients: connections,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
        service: ServiceTime::Exponential(Nanos::from_micros(10)),
    };
    Plan::Open(Schedule::draw(&workload, 1, Nanos::from_millis(milliseconds)).unwrap())
}

fn config(server: &Server) -> LoadConfig {
    LoadConfig::new(server.address, Nanos::from_secs(1))
}

fn run_checked(config: &LoadConfig, plan: &Plan, algorithm: &str) -> RunResults {
    let results = run(config, plan, clients(algorithm), &AtomicBool::new(false), |_| {}).unwrap();
    let report = &results.report;
    assert_eq!(report.totals.offered, report.totals.total(), "{report:#?}");
    assert_eq!(report.violations, Vec::<String>::new());
    results
}

fn planned(plan: &Plan) -> u64 {
    let Plan::Open(schedule) = plan else { return 0 };
    schedule.requests().len() as u64
}

#[test]
fn every_request_is_offered_and_counted_once() {
    for polling in [Polling::Sleep, Polling::Hybrid, Polling::Busy] {
        let server = Server::start(Behaviour { drop_every: 3, fail_every: 5, ..Behaviour::default() });
        let plan = open(20, 5_000.0, 300);
        let window = Some(Nanos::from_millis(50));
        let report = run_checked(&LoadConfig { polling, window, ..config(&server) }, &plan, "none").report;
        let totals = report.totals;
        assert_eq!(totals.offered, planned(&plan), "nothing is skipped");
        assert_eq!(report.ending, RunEndReason::Finished);
        assert_eq!(totals.completed + totals.dropped + totals.failed, totals.offered);
        assert_eq!(totals.dropped, totals.offered / 3);
        assert_eq!(totals.failed, totals.offered / 5 - totals.offered / 15);
        assert_eq!(report.drop_reasons["Delay"], totals.dropped);
        assert_eq!(report.failures["Failed"], totals.failed);
        assert_eq!(server.calls(), totals.offered);
        let Plan::Open(schedule) = &plan else { unreachable!() };
        let planned_ns: u64 = schedule.requests().iter().map(|request| request.service.0).sum();
        assert_eq!(server.service_ns(), planned_ns, "the service times travel as they were drawn");
        let in_windows: u64 = report.windows.iter().map(|window| window.counts.total()).sum();
        assert_eq!(in_windows, totals.offered);
        assert_eq!(report.windows.iter().map(|window| window.latency.count).sum::<u64>(), totals.completed);
        assert_eq!((report.connections.opened, report.connections.lost), (20, 0));
        assert!(report.latency.mean_ns >= report.latency_from_send.mean_ns);
    }
}

#[test]
fn a_stall_delays_every_request_scheduled_during_it() {
    let stall = Duration::from_millis(50);
    let server = Server::start(Behaviour { stall: Some((200, stall)), ..Behaviour::default() });
    // One connection, so that no answer overtakes the stall; its queue is longer than the number of
    // requests.
    let plan = open(1, 2_000.0, 400);
    let results = run_checked(&config(&server), &plan, "none");
    // 2,000/s: about 100 requests were due in 50 ms, and had to wait half of it on average. A
    // generator that waits for each answer before its next request would see one slow request.
    let latency = results.latency.histogram();
    let slow = latency.count_between(25_000_000, u64::MAX);
    assert!(slow >= 35, "{slow} requests waited 25 ms or longer");
    assert!(results.report.latency.max.0 >= 49_000_000);
}

#[test]
fn the_latency_of_a_blocked_request_counts_from_its_intended_time() {
    // A window of one: during the stall requests wait at the client, which latency from the sending
    // would not show.
    let stall = Duration::from_millis(50);
    let behaviour = Behaviour { regime: Regime::Credits, window: 1, stall: Some((100, stall)), ..Behaviour::default() };
    let server = Server::start(behaviour);
    let plan = open(1, 1_000.0, 300);
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let environment = Environment::new(1, Nanos::from_micros(50), Nanos::from_secs(1));
    let parts = || {
        let mut parts = (algorithm.build_client)(&params, &environment)?;
        (parts.config.queue, parts.config.max_delay) = (10_000, Nanos::MAX);
        Ok(parts)
    };
    let results = run(&config(&server), &plan, parts, &AtomicBool::new(false), |_| {}).unwrap();
    let slow = |of: &leeward_load::recorder::Distribution| of.histogram().count_between(25_000_000, u64::MAX);
    let (intended, sent) = (slow(&results.latency), slow(&results.latency_from_send));
    assert!(intended >= 15, "{intended} of about 25 requests");
    assert!(intended >= sent + 10, "{intended} from the intended time, {sent} from the sending");
}

#[test]
fn a_late_generator_reports_it_and_skips_no_request() {
    let server = Server::start(Behaviour::default());
    let plan = open(4, 2_000.0, 300);
    let stall = Duration::from_millis(50);
    let mut stalled = false;
    let once = |progress: &leeward_load::Progress| {
        if !stalled && progress.counts.offered > 0 {
            stalled = true;
            // Blocks the generator's thread.
            std::thread::sleep(stall);
        }
    };
    let results = run(&config(&server), &plan, clients("none"), &AtomicBool::new(false), once).unwrap();
    let report = &results.report;
    assert_eq!(report.totals.completed, planned(&plan));
    assert!(report.totals.late >= 70, "{} of about 100", report.totals.late);
    assert!(report.adherence.lateness.max.0 >= 45_000_000 && report.adherence.late_share > 0.0);
    let slow = results.latency.histogram().count_between(25_000_000, u64::MAX);
    assert!(slow >= 35, "{slow} requests waited 25 ms or longer, here");
}

#[test]
fn a_trace_is_replayed_on_a_pinned_cpu() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| before.is_set(*cpu)).unwrap();
    let server = Server::start(Behaviour::default());
    let text: String = (0..300).map(|request| format!("{} {} {}.5\n", request * 100, request % 3, request)).collect();
    let trace = leeward_load::trace::Trace::parse(&text).unwrap();
    let plan = Plan::Open(Schedule::replay(&trace, 1));
    let report = run_checked(&LoadConfig { cpu: Some(cpu), ..config(&server) }, &plan, "none").report;
    assert_eq!(report.totals.completed, 300);
    assert_eq!(report.connections.opened, 3);
    assert_eq!(server.service_ns(), (0..300).map(|request| request * 1_000 + 500).sum::<u64>());
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before, "and the thread is put back");
}

#[test]
fn a_killed_server_ends_all_requests_at_once() {
    let server = Server::start(Behaviour { die_after: Some(500), ..Behaviour::default() });
    // The run would take an hour.
    let plan = Plan::Closed {
        connections: 8,
        outstanding: 4,
        service: ServiceTime::Constant(Nanos::from_micros(1)),
        seed: 1,
        duration: Nanos::from_secs(3600),
    };
    let report = run_checked(&config(&server), &plan, "none").report;
    assert_eq!(report.ending, RunEndReason::Disconnected);
    assert_eq!(report.connections.lost, 8);
    assert!(report.totals.disconnected > 0 && report.totals.completed > 0, "{:?}", report.totals);
    assert_eq!(report.totals.unfinished, 0);
}

#[test]
fn a_server_that_never_answers_leaves_unfinished_requests() {
    for (timeout, unfinished) in [(None, true), (Some(Nanos::from_millis(1)), false)] {
        let server = Server::start(Behaviour { mute: true, ..Behaviour::default() });
        let plan = open(4, 500.0, 100);
        let config = LoadConfig { drain: Nanos::from_millis(30), timeout, ..config(&server) };
        let report = run_checked(&config, &plan, "none").report;
        assert_eq!(report.ending, RunEndReason::Drained);
        let totals = report.totals;
        assert_eq!(if unfinished { totals.unfinished } else { totals.timed_out }, planned(&plan), "{totals:?}");
    }
}

#[test]
fn a_stopped_run_accounts_for_every_request() {
    let server = Server::start(Behaviour::default());
    let stop = AtomicBool::new(false);
    let plan = open(4, 1_000.0, 20_000);
    let after_some = |progress: &leeward_load::Progress| {
        if progress.counts.offered > 50 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let report = run(&config(&server), &plan, clients("none"), &stop, after_some).unwrap().report;
    assert_eq!(report.ending, RunEndReason::Stopped);
    assert!(report.totals.offered < report.planned);
    assert_eq!(report.totals.total(), report.totals.offered);
    // Rates are over the actual time, not over the planned 20 s.
    assert!(report.duration_ns < 20_000_000_000, "{}", report.duration_ns);
    let seconds = report.duration_ns as f64 / 1e9;
    assert!((report.throughput_per_s * seconds - report.measured.completed as f64).abs() < 0.5);
    assert!(report.measured.completed > 0);
}

#[test]
fn progress_is_reported_without_responses() {
    // A window ends even without a response in it.
    let server = Server::start(Behaviour { mute: true, ..Behaviour::default() });
    let length = Nanos::from_millis(20);
    let config =
        LoadConfig { drain: Nanos::from_millis(1), window: Some(length), progress_every: length, ..config(&server) };
    let mut seen = Vec::new();
    let on_progress = |progress: &leeward_load::Progress| seen.push((progress.elapsed, progress.latest));
    let report =
        run(&config, &open(2, 1_000.0, 200), clients("none"), &AtomicBool::new(false), on_progress).unwrap().report;
    assert_eq!(report.totals.completed, 0);
    assert!(seen.len() > 1);
    for (elapsed, latest) in seen {
        let last_ended = (elapsed.0 / length.0).checked_sub(1);
        assert_eq!(latest.map(|window| window.start.0), last_ended.map(|index| index * length.0), "after {elapsed}");
    }
}

#[test]
fn requests_expire_or_overflow_in_the_algorithms_client() {
    // The window stays 0: a request that leaves the queue has expired or overflowed.
    let server = Server::start(Behaviour { regime: Regime::Credits, window: 0, ..Behaviour::default() });
    let plan = open(2, 2_000.0, 200);
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let environment = Environment::new(1, Nanos::from_micros(50), Nanos::from_millis(10));
    let parts = || {
        let mut parts = (algorithm.build_client)(&params, &environment)?;
        (parts.config.queue, parts.config.max_delay) = (16, Nanos::from_millis(5));
        Ok(parts)
    };
    let report = run(&config(&server), &plan, parts, &AtomicBool::new(false), |_| {}).unwrap().report;
    assert_eq!(report.totals.expired + report.totals.overflowed, planned(&plan));
    assert!(report.totals.expired > 0);
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_closed_loop_keeps_its_requests_in_flight() {
    let server = Server::start(Behaviour { drop_every: 7, ..Behaviour::default() });
    let plan = Plan::Closed {
        connections: 4,
        outstanding: 8,
        service: ServiceTime::Constant(Nanos::from_micros(1)),
        seed: 1,
        duration: Nanos::from_millis(200),
    };
    let report = run_checked(&config(&server), &plan, "none").report;
    assert_eq!(report.ending, RunEndReason::Finished);
    assert!(report.totals.completed > 32, "{:?}", report.totals);
    assert!(report.throughput_per_s > 0.0);
}

#[test]
fn a_closed_loop_keeps_its_number_in_flight_with_payloads_of_any_length() {
    for (outstanding, payload) in [(1, 8), (3, 64), (40, 8), (40, 5_000)] {
        // The server never answers, so its received calls are the calls in flight.
        let server = Server::start(Behaviour { mute: true, ..Behaviour::default() });
        let service = ServiceTime::Constant(Nanos::from_micros(1));
        let plan = Plan::Closed { connections: 3, outstanding, service, seed: 1, duration: Nanos::from_millis(200) };
        let config = LoadConfig { payload, drain: Nanos::from_millis(200), ..config(&server) };
        let totals = run_checked(&config, &plan, "none").report.totals;
        assert_eq!(totals.offered, u64::from(3 * outstanding), "{outstanding} of {payload} bytes");
        assert_eq!(server.calls(), totals.offered, "{outstanding} of {payload} bytes");
    }
    let server = Server::start(Behaviour::default());
    let report =
        run_checked(&LoadConfig { payload: 2_000_000, ..config(&server) }, &open(2, 1_000.0, 50), "none").report;
    assert!(report.totals.too_long > 0);
    assert_eq!((report.totals.too_long, server.calls()), (report.totals.offered, 0), "more than a server takes");
}

#[test]
fn a_multiple_of_the_capacity_is_offered_over_the_connections_that_measured_it() {
    let server = Server::start(Behaviour { drop_every: 9, ..Behaviour::default() });
    let service = ServiceTime::Constant(Nanos::from_micros(1));
    let closed = Plan::Closed { connections: 4, outstanding: 2, service, seed: 1, duration: Nanos::from_millis(200) };
    let mut found = 0.0;
    let schedule = |capacity: Rate| {
        found = capacity.0;
        let Plan::Open(schedule) = open(4, 2_000.0, 200) else { unreachable!() };
        Ok(schedule)
    };
    let config = LoadConfig { warmup: Nanos::from_millis(150), ..config(&server) };
    let scaled = run_scaled(&config, &closed, 2, schedule, clients("none"), &AtomicBool::new(false), |_| {}).unwrap();
    let (measured, report) = (&scaled.measured, &scaled.results.report);
    assert!(found > 0.0 && found == measured.throughput_per_s);
    assert_eq!((measured.warmup_ns, report.warmup_ns), (50_000_000, 150_000_000), "each has a warm-up of its own");
    assert_eq!((measured.ending, report.ending), (RunEndReason::Finished, RunEndReason::Finished));
    assert_eq!(report.totals.offered, report.planned, "the books of the two are apart");
    assert_eq!(measured.totals.total() + report.totals.total(), server.calls());
    assert_eq!((report.connections.opened, report.connections.lost), (4, 0));
    assert_eq!(server.connections(), 4, "and no other");
}

#[test]
fn an_unmeasurable_capacity_is_an_error() {
    let service = ServiceTime::Constant(Nanos::from_micros(1));
    let closed = Plan::Closed { connections: 2, outstanding: 1, service, seed: 1, duration: Nanos::from_millis(100) };
    let never = AtomicBool::new(false);
    let error_of = |behaviour| {
        let server = Server::start(behaviour);
        let config = LoadConfig { drain: Nanos::from_millis(50), ..config(&server) };
        let schedule = |_: Rate| -> Result<Schedule, _> { panic!("there is no capacity") };
        run_scaled(&config, &closed, 2, schedule, clients("none"), &never, |_| {}).unwrap_err().to_string()
    };
    let mute = error_of(Behaviour { mute: true, ..Behaviour::default() });
    assert!(mute.contains("never answered"), "{mute}");
    let dead = error_of(Behaviour { die_after: Some(20), ..Behaviour::default() });
    assert!(dead.contains("closed connections"), "{dead}");
    let drops = error_of(Behaviour { drop_every: 1, ..Behaviour::default() });
    assert!(drops.contains("nothing was answered"), "{drops}");
}

#[test]
fn a_closed_loop_does_not_displace_its_own_requests() {
    let server = Server::start(Behaviour { regime: Regime::Credits, window: 2, ..Behaviour::default() });
    let plan = Plan::Closed {
        connections: 2,
        outstanding: 100,
        service: ServiceTime::Constant(Nanos::from_micros(1)),
        seed: 1,
        duration: Nanos::from_millis(100),
    };
    let totals = run_checked(&config(&server), &plan, "none").report.totals;
    assert_eq!((totals.overflowed, totals.completed), (0, totals.offered));
}

#[test]
fn a_closed_loop_waits_for_its_credits() {
    let server = Server::start(Behaviour { regime: Regime::Credits, window: 1, ..Behaviour::default() });
    let plan = Plan::Closed {
        connections: 2,
        outstanding: 50,
        service: ServiceTime::Constant(Nanos::from_micros(1)),
        seed: 1,
        duration: Nanos::from_millis(100),
    };
    let parts = || {
        let mut parts = clients("none")()?;
        parts.config.max_delay = Nanos::from_micros(1);
        Ok(parts)
    };
    let totals = run(&config(&server), &plan, parts, &AtomicBool::new(false), |_| {}).unwrap().report.totals;
    // At the end of the loop, waiting requests expire as in an open loop.
    assert!(totals.expired <= 100 && totals.completed > 100, "{totals:?}");
}

/// Ends every second request at the client.
struct ThrottlingHalf(bool);

impl ClientHalf for ThrottlingHalf {
    fn submit(&mut self, _: &Submission) -> ClientVerdict {
        self.0 = !self.0;
        if self.0 { ClientVerdict::Reject } else { ClientVerdict::Accept }
    }

    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}

#[test]
fn a_closed_loop_client_pauses_after_a_throttled_request() {
    let server = Server::start(Behaviour::default());
    let plan = Plan::Closed {
        connections: 3,
        outstanding: 1,
        service: ServiceTime::Constant(Nanos::from_micros(1)),
        seed: 1,
        duration: Nanos::from_millis(100),
    };
    let parts = || Ok(ClientParts { half: Box::new(ThrottlingHalf(false)), config: ClientConfig::default() });
    let totals = run(&config(&server), &plan, parts, &AtomicBool::new(false), |_| {}).unwrap().report.totals;
    assert!(totals.throttled <= 3 * 11 && totals.completed >= 3, "a rest is 10 ms: {totals:?}");
}

#[test]
fn a_thousand_connections() {
    let server = Server::start(Behaviour::default());
    let plan = open(1_000, 5_000.0, 200);
    let report = run_checked(&config(&server), &plan, "none").report;
    assert_eq!(report.connections.opened, 1_000);
    assert_eq!(report.totals.completed, planned(&plan));
}

#[test]
fn start_errors_of_a_run_are_reported() {
    let nobody = leeward_testkit::net::vacant_address();
    let never = AtomicBool::new(false);
    let plan = open(2, 100.0, 10);
    let error = run(&LoadConfig::new(nobody, Nanos(1)), &plan, clients("none"), &never, |_| {}).unwrap_err();
    assert!(matches!(error, LoadError::Connect { number: 1, of: 2, .. }), "{error}");

    // Accepts connections, and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = LoadConfig {
        connect_timeout: Nanos::from_millis(50),
        ..LoadConfig::new(silent.local_addr().unwrap(), Nanos(1))
    };
    let error = run(&config, &plan, clients("none"), &never, |_| {}).unwrap_err();
    assert!(error.to_string().contains("no welcome in time"), "{error}");

    let config = LoadConfig { payload: 7, ..config };
    assert!(matches!(run(&config, &plan, clients("none"), &never, |_| {}), Err(LoadError::Config(_))));
    let config = LoadConfig { payload: 8, cpu: Some(1 << 20), ..config };
    assert!(matches!(run(&config, &plan, clients("none"), &never, |_| {}), Err(LoadError::Pin { .. })));
}

#[test]
fn the_report_is_json() {
    let server = Server::start(Behaviour::default());
    let results = run_checked(&config(&server), &open(2, 1_000.0, 50), "none");
    let mut json = Vec::new();
    leeward_load::output::write_json(&results.report, &mut json).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["ending"], "finished");
    assert_eq!(value["totals"]["offered"], results.report.totals.offered);
    let mut hgrm = Vec::new();
    leeward_load::output::write_hgrm(results.latency.histogram(), &mut hgrm).unwrap();
    assert!(hgrm.len() > 100);
}
