//! From the simulator's report to rows of the results.

use crate::numbers::{micros, per_second, ratio, round};
use crate::plan::PlannedRun;
use leeward_outcome::results::{Lock, Point, Replica, RunKey, Window, WorkloadKey};
use leeward_plant::locks::LockUse;
use leeward_sim::SimReport;
use leeward_sim::report::{LockReport, WindowReport};

/// Which run a row is of.
pub(crate) fn run_key(run: &PlannedRun<'_>) -> RunKey {
    RunKey { controller: run.variant.controller.clone(), label: run.variant.label.clone(), seed: run.config.seed }
}

/// The workload that a run meets.
fn workload_key(run: &PlannedRun<'_>) -> WorkloadKey {
    let demand = run.demand().0;
    WorkloadKey {
        service: run.service.text.clone(),
        demand_rps: round(demand, 1),
        demand_ratio: round(demand / run.capacity.0, 6),
        clients: run.clients,
        p: run.application.p,
        r: run.application.r,
    }
}

/// The row of a run.
pub(crate) fn point(run: &PlannedRun<'_>, report: &SimReport) -> Point {
    let counts = &report.counts;
    Point {
        run: run_key(run),
        workload: workload_key(run),
        service_mean_us: micros(run.service.service.mean()),
        capacity_rps: round(run.capacity.0, 1),
        slo_us: micros(run.config.slo),
        throughput_rps: per_second(counts.completed, report.measured),
        goodput_rps: per_second(counts.good, report.measured),
        p50_us: micros(report.latency.p50),
        p99_us: micros(report.latency.p99),
        p999_us: micros(report.latency.p999),
        mean_us: round(report.latency.mean_ns / 1e3, 3),
        drop_rate: ratio(counts.rejected, counts.received),
        lock_drop_rate: (!run.config.application.is_plain()).then(|| ratio(counts.refused_at_locks, counts.received)),
        expiry_rate: ratio(counts.expired + counts.overflowed, counts.offered),
        throttle_rate: ratio(counts.throttled, counts.offered),
        retry_rate: run.config.replicas.map(|_| ratio(counts.sent_again, counts.offered)),
        failure_p99_us: run.config.replicas.map(|_| micros(report.failure_delay.p99)),
        reject_delay_mean_us: round(report.reject_delay.mean_ns / 1e3, 3),
        cpu_utilization: round(report.cpu_utilization, 6),
        rx_per_request: ratio(counts.rx_messages, counts.completed),
        tx_per_request: ratio(counts.tx_messages, counts.completed),
        rx_mps: per_second(counts.rx_messages, report.measured),
        tx_mps: per_second(counts.tx_messages, report.measured),
        offered: counts.offered,
        unfinished: report.totals.unfinished,
        rtt_us: micros(run.config.network.rtt),
        allocator: run.config.server.scheduling.as_ref().map(|model| model.allocator.clone()),
        balancing: run.config.server.scheduling.as_ref().map(|model| model.balancing.to_string()),
        cores_mean: report.cores.map(|cores| round(cores.mean_cores, 4)),
        best_effort_share: report.cores.map(|cores| round(cores.best_effort_share, 6)),
        predicted_goodput_rps: None,
        predicted_p99_us: None,
    }
}

/// The rows of a simulated run's locks.
pub(crate) fn locks(run: &PlannedRun<'_>, report: &SimReport) -> Vec<Lock> {
    let own = report.locks.iter().map(|lock| (lock, lock.name.clone(), report));
    let replicas = report.replicas.iter().enumerate().flat_map(|(index, server)| {
        server.locks.iter().map(move |lock| (lock, format!("{}@{}", lock.name, index + 1), server))
    });
    let one = |(lock, name, server): (&LockReport, String, &SimReport)| Lock {
        lock: name,
        acquired_rps: per_second(lock.acquisitions, report.measured),
        waited_rate: ratio(lock.waited, lock.acquisitions),
        refused_rps: per_second(lock.refusals, report.measured),
        // One that was refused before the measured part may leave in it, or the other way round.
        drop_share: ratio(lock.refusals, server.counts.rejected).min(1.0),
        wait_mean_us: round(lock.wait.mean_ns / 1e3, 3),
        wait_p50_us: micros(lock.wait.p50),
        wait_p99_us: micros(lock.wait.p99),
        waiting: Some(lock.waiting),
        utilization: Some(round(lock.utilization, 6)),
        ..lock_of(run)
    };
    own.chain(replicas).map(one).collect()
}

/// The rows of a real run's locks, of whose server's requests so many were `dropped`.
pub(crate) fn real_locks(run: &PlannedRun<'_>, locks: &[LockUse], dropped: u64) -> Vec<Lock> {
    let one = |lock: &LockUse| Lock {
        lock: lock.name.clone(),
        kind: Some(lock.kind.into()),
        acquired_rps: per_second(lock.acquired, lock.span),
        waited_rate: ratio(lock.contended, lock.acquired),
        refused_rps: per_second(lock.refused, lock.span),
        // The two are read one after the other.
        drop_share: ratio(lock.refused, dropped).min(1.0),
        wait_mean_us: round(lock.wait_mean_ns / 1e3, 3),
        wait_p50_us: micros(lock.wait_p50),
        wait_p99_us: micros(lock.wait_p99),
        ..lock_of(run)
    };
    locks.iter().map(one).collect()
}

/// A lock's row with nothing but which run it is of.
fn lock_of(run: &PlannedRun<'_>) -> Lock {
    Lock { run: run_key(run), workload: workload_key(run), ..Lock::default() }
}

/// The rows of a run's servers, where there are several.
pub(crate) fn replicas(run: &PlannedRun<'_>, report: &SimReport) -> Vec<Replica> {
    let one = |(index, server): (usize, &SimReport)| Replica {
        replica: index as u32 + 1,
        run: run_key(run),
        workload: workload_key(run),
        attempts_rps: per_second(server.counts.offered, server.measured),
        throughput_rps: per_second(server.counts.completed, server.measured),
        p99_us: micros(server.latency.p99),
        drop_rate: ratio(server.counts.rejected, server.counts.received),
        expiry_rate: ratio(server.counts.expired + server.counts.overflowed, server.counts.offered),
        cpu_utilization: round(server.cpu_utilization, 6),
    };
    report.replicas.iter().enumerate().map(one).collect()
}

/// The rows of a run's time series.
pub(crate) fn windows(run: &PlannedRun<'_>, report: &SimReport) -> Vec<Window> {
    report.windows.iter().map(|window| one_window(run, window)).collect()
}

fn one_window(run: &PlannedRun<'_>, window: &WindowReport) -> Window {
    Window {
        run: run_key(run),
        start_s: round(window.start.0 as f64 / 1e9, 9),
        length_ms: round(window.length.as_secs_f64() * 1e3, 6),
        demand_rps: round(run.demand_at(window.start).0, 1),
        throughput_rps: per_second(window.counts.completed, window.length),
        goodput_rps: per_second(window.counts.good, window.length),
        p99_us: micros(window.latency.p99),
        drops_rps: per_second(window.counts.dropped, window.length),
        reject_delay_mean_us: round(window.reject_delay.mean_ns / 1e3, 3),
        delay_us: micros(window.delay),
        credit_pool: window.gauges.credit_pool.map(|credits| credits as f64),
        credits_issued: window.gauges.credits_issued.map(|credits| credits as f64),
        cores: window.cores.map(|cores| round(cores, 4)),
    }
}
