//! Guarantees of the lock policies, and the controller's signals about rejections at locks.

use leeward_core::server::{ControlLoop, Gauges, ServerHalves, Signals};
use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{Application, LockKind, LockModel, LockPolicy, Segment, SimConfig, Workload};
use leeward_sim::{RunOutcome, service_time::ServiceTime, simulate, simulate_wrapped};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two locks with half of the requests each, which together can do 200 k/s, at this demand.
fn config(demand: f64, kind: LockKind, acquire: LockPolicy) -> SimConfig {
    let testbed = SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 1.0);
    SimConfig {
        workload: Workload {
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(demand) }],
            ..testbed.workload.clone()
        },
        application: Application::two_locks(0.5),
        locks: LockModel { kind, acquire },
        warmup: Nanos::from_millis(50),
        duration: Nanos::from_millis(250),
        audit: true,
        ..testbed
    }
}

fn run(config: &SimConfig) -> RunOutcome {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let report = simulate(config, &none, &none.params(&[]).unwrap()).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    report
}

const KINDS: [LockKind; 2] = [LockKind::Mutex, LockKind::Spinlock];

#[test]
fn a_plain_lock_is_always_waited_for() {
    for kind in KINDS {
        let report = run(&config(300e3, kind, LockPolicy::Plain));
        assert_eq!((report.server.rejected, report.server.refused_at_locks), (0, 0));
        for lock in &report.locks {
            assert_eq!(lock.rejected, 0);
            match kind {
                LockKind::Mutex => assert!(lock.utilization.unwrap() > 0.95, "{lock:?}"),
                // Ten cores, each always at one of the two locks: a closed network of two equal
                // queues. Each of the eleven ways to divide ten is equally likely, and in one of
                // them no core is at this lock.
                LockKind::Spinlock => assert!((lock.utilization.unwrap() - 10.0 / 11.0).abs() < 0.02, "{lock:?}"),
            }
        }
        assert!(report.latency.p50 > Nanos::from_millis(1), "{kind:?}: what comes too much has to wait somewhere");
    }
}

#[test]
fn try_acquire_never_waits() {
    for kind in KINDS {
        let report = run(&config(150e3, kind, LockPolicy::Try));
        for lock in &report.locks {
            assert_eq!((lock.contended, lock.wait_max), (0, Some(Nanos::ZERO)));
            // A lock that is busy for 3/4 of the arrivals, without waiting: M/M/1/1 rejects 0.75 /
            // 1.75.
            let refused = lock.rejected as f64 / (lock.rejected + lock.acquisitions) as f64;
            assert!((refused - 0.75 / 1.75).abs() < 0.03, "{refused}");
        }
        assert_eq!(report.server.rejected, report.server.refused_at_locks);
    }
}

#[test]
fn no_request_waits_longer_than_the_lock_timeout() {
    for kind in KINDS {
        let after = Nanos::from_micros(70);
        let report = run(&config(300e3, kind, LockPolicy::Timed { timeout: after }));
        for lock in &report.locks {
            // The histogram rounds up by less than a thousandth.
            assert!(lock.wait_max.unwrap().0 <= after.0 + after.0 / 500, "{lock:?}");
            assert!(lock.rejected > 0 && lock.contended > 0);
        }
    }
}

#[test]
fn a_budget_keeps_latency_near_it() {
    let limited =
        |budget, again| run(&config(220e3, LockKind::Mutex, LockPolicy::UnlessCongested { budget, recheck: again }));
    let budget = Nanos::from_micros(85);
    let once = limited(budget, false);
    assert!(once.server.refused_at_locks > 0);
    assert!(once.latency.p99 < Nanos::from_micros(250), "{:?}", once.latency);
    assert!(once.counts.completed * 5 > 170_000, "{:?}", once.counts);
    // A request that is checked again has not waited longer than the budget in any queue.
    let again = limited(budget, true);
    assert!(again.latency.p99 < once.latency.p99, "{:?}", again.latency);
    assert!(again.counts.completed * 5 > 170_000, "{:?}", again.counts);
    for (lock, unbounded) in again.locks.iter().zip(&once.locks) {
        assert!(lock.wait_max.unwrap().0 <= budget.0 + budget.0 / 500 && lock.rejected > 0, "{lock:?}");
        assert!(unbounded.wait_max > Some(budget), "{unbounded:?}");
    }
    // Without a budget, a request gets the lock only if it is free, or if no request waits for it.
    let nothing = limited(Nanos::ZERO, false);
    assert!(nothing.latency.p99 < Nanos::from_micros(150), "{:?}", nothing.latency);
    let nothing = limited(Nanos::ZERO, true);
    assert!(nothing.locks.iter().all(|lock| lock.contended == 0), "{:?}", nothing.locks);
}

#[test]
fn every_controller_is_offered_the_same_paths() {
    // At a load at which no controller acts, all of them take each lock equally often.
    let config = config(20e3, LockKind::Mutex, LockPolicy::Plain);
    let taken = |name: &str| {
        let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
        let report = simulate(&config, &algorithm, &algorithm.params(&[]).unwrap()).unwrap();
        report.locks.iter().map(|lock| lock.acquisitions).collect::<Vec<_>>()
    };
    let expected = taken("none");
    assert!(expected[0].abs_diff(2_000) < 200, "{expected:?}");
    // Clients of these controllers hold requests back until they have learnt; DAGOR begins with a
    // threshold of 32.
    let paced = ["breakwater", "efficiency", "auto", "seda", "dagor", "window"];
    for algorithm in leeward_controllers::builtin().algorithms().filter(|algorithm| !paced.contains(&algorithm.name)) {
        assert_eq!(taken(algorithm.name), expected, "{}", algorithm.name);
    }
    for name in paced {
        let near = taken(name).iter().zip(&expected).all(|(now, then)| now.abs_diff(*then) * 8 <= *then);
        assert!(near, "{name}: {:?} of {expected:?}", taken(name));
    }
}

/// Adds up the signals of a slow half.
struct DropRecorder {
    inner: Box<dyn ControlLoop>,
    drops: Arc<AtomicU64>,
    lock_drops: Arc<AtomicU64>,
}

impl ControlLoop for DropRecorder {
    fn period(&self) -> Nanos {
        self.inner.period()
    }
    fn tick(&mut self, signals: &Signals) {
        self.drops.fetch_add(signals.rejections, Ordering::Relaxed);
        self.lock_drops.fetch_add(signals.lock_rejections, Ordering::Relaxed);
        self.inner.tick(signals);
    }
    fn gauges(&self) -> Gauges {
        self.inner.gauges()
    }
}

#[test]
fn controllers_receive_lock_rejections() {
    let (drops, lock_drops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let algorithm = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let wrap = |halves: ServerHalves| {
        let control =
            DropRecorder { inner: halves.control, drops: Arc::clone(&drops), lock_drops: Arc::clone(&lock_drops) };
        ServerHalves { cores: halves.cores, control: Box::new(control) }
    };
    let budget = LockPolicy::UnlessCongested { budget: Nanos::from_micros(134), recheck: true };
    let config = SimConfig { warmup: Nanos::ZERO, ..config(300e3, LockKind::Mutex, budget) };
    let report = simulate_wrapped(&config, &algorithm, &algorithm.params(&[]).unwrap(), wrap).unwrap();
    let (drops, lock_drops) = (drops.load(Ordering::Relaxed), lock_drops.load(Ordering::Relaxed));
    assert!(lock_drops > 10_000 && lock_drops <= drops, "{lock_drops} of {drops}");
    // The last rejections may have left after the last tick, or not at all yet.
    assert!(report.server.refused_at_locks - lock_drops < 100, "{lock_drops} {:?}", report.counts);
}
