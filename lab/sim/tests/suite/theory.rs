//! The simulator compared with queueing theory: without message costs it is M/M/1, M/D/1, M/G/1 and
//! M/M/c, and its mean waiting times must agree with the closed forms within 1 %.

use crate::common::queueing::{Queue, erlang_c, pollaczek_khinchine};
use leeward_core::units::Nanos;
use leeward_sim::config::{Application, LockKind, Path, Pauses, Quota, ServerModel, Stalls, Step};
use leeward_sim::service_time::ServiceTime;

const MEAN: Nanos = Nanos::from_micros(10);

/// Loads, each with the number of requests that reduces chance below 1 %: waiting times are
/// correlated over a span that grows with 1 / (1 − load)².
const LOADS: [(f64, f64); 4] = [(0.5, 2e6), (0.8, 6e6), (0.9, 20e6), (0.95, 60e6)];
/// Loads of all but one queue: the last takes two thirds of the requests, and the audit of each run
/// shows that no core idles beside a queue, whatever the load.
const USUAL: &[(f64, f64)] = LOADS.split_at(3).0;

/// Compares waiting times of `service` on `cores` with `expected_us` of the load.
fn check(cores: u32, service: &ServiceTime, loads: &[(f64, f64)], expected_us: impl Fn(f64) -> f64) {
    for (load, requests) in loads.iter().copied() {
        let report = queue(cores, service, load, requests).run();
        let measured_us = report.waiting.unwrap().mean_ns / 1e3;
        let error = measured_us / expected_us(load) - 1.0;
        println!(
            "{cores} core(s), {service:?}, load {load}: {measured_us:.3} us, theory {:.3} us, {:+.2} %",
            expected_us(load),
            error * 100.0
        );
        assert!(error.abs() < 0.01, "off by {:.2} %", error * 100.0);
    }
}

/// M/M/1: a wait is longer than `t` with the probability load × exp(−(1 − load) t / mean).
#[test]
fn waits_of_m_m_1_are_exponential() {
    for (load, requests) in &LOADS[..2] {
        let waiting = queue(1, &ServiceTime::Exponential(MEAN), *load, *requests).run().waiting.unwrap();
        for (percentile, beyond) in [(waiting.p90, 0.1), (waiting.p99, 0.01), (waiting.p999, 0.001)] {
            let expected_us = 10.0 * f64::ln(load / beyond) / (1.0 - load);
            let error = percentile.as_secs_f64() * 1e6 / expected_us - 1.0;
            println!(
                "load {load}, {beyond} beyond: {percentile:?}, theory {expected_us:.1} us, {:+.2} %",
                error * 100.0
            );
            assert!(error.abs() < 0.02, "off by {:.2} %", error * 100.0);
        }
    }
}

/// A queue without locks.
fn queue(cores: u32, service: &ServiceTime, load: f64, requests: f64) -> Queue {
    let (application, kind) = (Application::default(), LockKind::Mutex);
    Queue { cores, service: service.clone(), load, requests, seed: 1, application, kind }
}

/// With spare cores, a mutex that every request holds for all of its work is a queue with one
/// server.
#[test]
fn a_lone_mutex_is_m_g_1() {
    let whole = Application::one_lock(1.0, 1.0);
    for (service, scv) in
        [(ServiceTime::Exponential(MEAN), 1.0), (ServiceTime::Constant(MEAN), 0.0), (ServiceTime::Bimodal(MEAN), 2.25)]
    {
        for (load, requests) in &LOADS[..2] {
            let queue = Queue { application: whole.clone(), ..queue(3, &service, *load, *requests) };
            check_lock(&queue, pollaczek_khinchine(*load, 10.0, scv));
        }
    }
}

/// Work before the lock, with a core for each request, keeps the arrivals at the lock Poisson:
/// still M/M/1, of half the work.
#[test]
fn a_mutex_behind_work_is_m_m_1() {
    let application = Application::one_lock(1.0, 0.5);
    for (load, requests) in &LOADS[..2] {
        let queue = Queue {
            application: application.clone(),
            ..queue(64, &ServiceTime::Exponential(MEAN), *load * 2.0, *requests)
        };
        check_lock(&queue, pollaczek_khinchine(*load, 5.0, 1.0));
    }
}

/// A spinlock keeps its waiters on cores, but the total wait is the same; requests without a core
/// wait for one.
#[test]
fn a_lone_spinlock_is_m_m_1() {
    let whole = Application::one_lock(1.0, 1.0);
    for (load, requests) in &LOADS[..2] {
        let queue = Queue {
            application: whole.clone(),
            kind: LockKind::Spinlock,
            ..queue(64, &ServiceTime::Exponential(MEAN), *load, *requests)
        };
        check_lock(&queue, pollaczek_khinchine(*load, 10.0, 1.0));
    }
}

fn check_lock(queue: &Queue, expected_us: f64) {
    let report = queue.run();
    let lock = &report.locks[0];
    let measured_us = lock.wait_mean_ns / 1e3;
    let error = measured_us / expected_us - 1.0;
    println!(
        "{:?}, load {}: {measured_us:.3} us at the lock, theory {expected_us:.3} us, {:+.2} %",
        queue.service,
        queue.load,
        error * 100.0
    );
    assert!(error.abs() < 0.015, "off by {:.2} %", error * 100.0);
    assert_eq!(lock.rejected, 0);
}

#[test]
fn m_m_1() {
    check(1, &ServiceTime::Exponential(MEAN), &LOADS, |load| pollaczek_khinchine(load, 10.0, 1.0));
}

#[test]
fn m_d_1() {
    check(1, &ServiceTime::Constant(MEAN), USUAL, |load| pollaczek_khinchine(load, 10.0, 0.0));
}

#[test]
fn m_g_1() {
    // 20 % take 4 times the mean, 80 % a quarter: E[S²] = 0.2·16 + 0.8/16 = 3.25, so the squared
    // variation is 2.25.
    check(1, &ServiceTime::Bimodal(MEAN), USUAL, |load| pollaczek_khinchine(load, 10.0, 2.25));
}

#[test]
fn m_m_c() {
    for cores in [4, 10] {
        check(cores, &ServiceTime::Exponential(MEAN), USUAL, |load| {
            let offered = load * f64::from(cores);
            erlang_c(cores, offered) * 10.0 / (f64::from(cores) - offered)
        });
    }
}

/// A disk is a queue with one server, which serves without a core: one otherwise idle core is
/// enough.
#[test]
fn a_disk_is_m_g_1() {
    let steps = vec![Step::Acquire(0), Step::Wait(1.0), Step::Release(0)];
    let disk = Application { locks: vec!["disk".into()], paths: vec![Path { share: 1.0, steps }] };
    for (service, scv) in [(ServiceTime::Exponential(MEAN), 1.0), (ServiceTime::Constant(MEAN), 0.0)] {
        for (load, requests) in &LOADS[..2] {
            let queue = Queue { application: disk.clone(), ..queue(1, &service, *load, *requests) };
            check_lock(&queue, pollaczek_khinchine(*load, 10.0, scv));
        }
    }
}

/// The utilization law: CPU time spent is throughput times service time, however much time the
/// machine takes from a core that works.
#[test]
fn cpu_time_is_throughput_times_service_time() {
    let (length, interval) = (Nanos::from_micros(50), Nanos::from_micros(100));
    let plain = ServerModel::default();
    let stalls = Some(Stalls { mean_interval: length, mean_length: length });
    let servers = [
        ("stalls", ServerModel { stalls, ..plain.clone() }),
        ("pauses", ServerModel { pauses: Some(Pauses { interval, length }), ..plain.clone() }),
        ("quota", ServerModel { quota: Some(Quota { period: interval, cpu: length }), ..plain }),
    ];
    for (name, server) in servers {
        let queue = queue(1, &ServiceTime::Constant(MEAN), 0.2, 1e5);
        let report = queue.run_on(server);
        let throughput = report.counts.completed as f64 / report.measured.as_secs_f64();
        let error = report.cpu_utilization / (throughput * MEAN.as_secs_f64()) - 1.0;
        println!("{name}: {} of all time, {:+.3} %", report.cpu_utilization, error * 100.0);
        assert!(error.abs() < 0.001, "{name}: off by {:.2} %", error * 100.0);
    }
}
