//! Conversion of a run's outcome to rows of the results, for any plant.

use crate::numbers::{micros, per_second, rate, ratio, round};
use crate::plan::PlannedRun;
use crate::shifts::shifts;
use leeward_outcome::results::{KindRow, LockRow, PointRow, ReplicaRow, ServiceRow, ShiftRow, WindowRow};
use leeward_outcome::{KindOutcome, LockOutcome, RunOutcome, ServiceOutcome, WindowOutcome};
use leeward_sim::config::RequestKind;
use leeward_threading::Fanout;

/// The rows of one run.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) point: PointRow,
    pub(crate) windows: Vec<WindowRow>,
    pub(crate) shifts: Vec<ShiftRow>,
    pub(crate) locks: Vec<LockRow>,
    pub(crate) replicas: Vec<ReplicaRow>,
    pub(crate) services: Vec<ServiceRow>,
    pub(crate) kinds: Vec<KindRow>,
    /// Reason not to trust the run as a measurement.
    pub(crate) warning: Option<String>,
}

impl Rows {
    /// Creates the rows of a run with this outcome.
    pub(crate) fn from_outcome(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Rows {
        Rows {
            point: point(run, outcome),
            windows: outcome.windows.iter().map(|window| window_row(run, window)).collect(),
            shifts: shifts(run, outcome),
            locks: locks(run, outcome),
            replicas: replicas(run, outcome),
            services: services(run, outcome),
            kinds: kinds(run, outcome),
            warning: None,
        }
    }
}

/// Share of requests that ended in some way. Their ratio may exceed 1: a request that came before
/// the measured interval may end in it, and a real server's counters are read one after the other.
fn share(part: u64, whole: u64) -> f64 {
    ratio(part, whole).min(1.0)
}

/// The columns of a run's row that are known before it.
pub(crate) fn setup(run: &PlannedRun<'_>) -> PointRow {
    let fixed = run.variant.threading.as_ref().and_then(|threading| threading.setup?.setup());
    PointRow {
        run: run.run_key(),
        workload: run.workload_key(),
        service_mean_us: micros(run.config.kinds.mean(&run.service.service)),
        capacity_rps: rate(run.capacity.0),
        slo_us: micros(run.config.slo),
        rtt_us: micros(run.config.network.rtt),
        allocator: run.config.server.scheduling.as_ref().map(|model| model.allocator.clone()),
        balancing: run.config.server.scheduling.as_ref().map(|model| model.balancing.to_string()),
        arrivals: run.config.tier.as_ref().map(|_| run.arrivals().into()),
        threading: run.variant.threading.as_ref().map(|threading| threading.text.clone()),
        fanout: fixed.map(|setup| if setup.fanout == Fanout::Sync { "sync".into() } else { "async".into() }),
        model: fixed.map(|setup| setup.to_string().chars().take(3).collect()),
        pool: fixed.map(|setup| u32::from(setup.network.max(setup.worker).max(setup.response))),
        ..PointRow::default()
    }
}

/// Row of a run.
pub(crate) fn point(run: &PlannedRun<'_>, report: &RunOutcome) -> PointRow {
    let (counts, server) = (&report.counts, &report.server);
    let second = report.threads.and_then(|threads| threads.second_calls);
    PointRow {
        throughput_rps: per_second(counts.completed, report.measured),
        goodput_rps: per_second(counts.good, report.measured),
        p50_us: micros(report.latency.p50),
        p99_us: micros(report.latency.p99),
        p999_us: micros(report.latency.p999),
        mean_us: round(report.latency.mean_ns / 1e3, 3),
        drop_rate: share(server.rejected, server.received),
        lock_drop_rate: report.uses_locks.then(|| share(server.refused_at_locks, server.received)),
        foreseen_rate: run.config.is_shadow().then(|| share(server.foreseen, server.received)),
        expiry_rate: share(counts.expired + counts.overflowed, counts.offered),
        throttle_rate: share(counts.throttled, counts.offered),
        retry_rate: run.config.replicas.map(|_| ratio(counts.sent_again, counts.offered)),
        timeout_rate: run.config.clients.timeout.map(|_| share(counts.timed_out, counts.offered)),
        failure_p99_us: report.failure_delay.map(|delay| micros(delay.p99)),
        reject_delay_mean_us: round(report.reject_delay.mean_ns / 1e3, 3),
        cpu_utilization: round(report.cpu_utilization, 6),
        rx_per_request: ratio(server.rx_messages, counts.completed),
        tx_per_request: ratio(server.tx_messages, counts.completed),
        rx_mps: per_second(server.rx_messages, report.measured),
        tx_mps: per_second(server.tx_messages, report.measured),
        offered: counts.offered,
        unfinished: report.totals.unfinished,
        settled: report.settling.map(|settling| settling.settled),
        throughput_settled: report.settling.map(|settling| settling.throughput_settled),
        settled_s: report.settling.map(|settling| round(settling.from.as_secs_f64(), 6)),
        measured_s: round(report.measured.as_secs_f64(), 6),
        goodput_error: report.settling.and_then(|settling| Some(round(settling.half_width?, 6))),
        late_us: report.lateness.as_ref().map(|late| micros(late.p99)),
        cores_mean: report.cores.map(|cores| round(cores.mean_cores, 4)),
        best_effort_share: report.cores.map(|cores| round(cores.best_effort_share, 6)),
        switches: report.threads.map(|threads| threads.switches),
        wakeups_per_request: report.threads.and_then(|threads| Some(ratio(threads.wakeups?, counts.completed))),
        context_switches_per_request: report
            .threads
            .and_then(|threads| Some(ratio(threads.context_switches?, counts.completed))),
        contended_per_request: report.threads.and_then(|threads| Some(ratio(threads.contended?, counts.completed))),
        empty_poll_cpu: report.threads.zip(run.config.tier.as_ref()).and_then(|(threads, tier)| {
            Some(round(threads.empty_polls?.as_secs_f64() / (report.measured.as_secs_f64() * f64::from(tier.cpus)), 6))
        }),
        hedged_rate: second.map(|second| ratio(second.hedged, second.calls)),
        retried_rate: second.map(|second| ratio(second.retried, second.calls)),
        partial_rate: second.map(|second| ratio(second.partial, second.answered)),
        wasted_cpu: report.graph.as_ref().map(|graph| round(graph.wasted_cpu, 6)),
        wasted_upstream_cpu: report.graph.as_ref().map(|graph| round(graph.wasted_upstream_cpu, 6)),
        ..setup(run)
    }
}

/// Rows of a run's locks; with several servers, of each server's locks.
fn locks(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Vec<LockRow> {
    let own = outcome.locks.iter().map(|lock| (lock, lock.name.clone(), outcome));
    let replicas = outcome.replicas.iter().enumerate().flat_map(|(index, server)| {
        server.locks.iter().map(move |lock| (lock, format!("{}@{}", lock.name, index + 1), server))
    });
    let lock_row = |(lock, name, server): (&LockOutcome, String, &RunOutcome)| LockRow {
        run: run.run_key(),
        workload: run.workload_key(),
        lock: name,
        kind: lock.kind.map(String::from),
        acquired_rps: per_second(lock.acquisitions, lock.span),
        waited_rate: share(lock.contended, lock.acquisitions),
        refused_rps: per_second(lock.rejected, lock.span),
        drop_share: share(lock.rejected, server.server.rejected),
        wait_mean_us: round(lock.wait_mean_ns / 1e3, 3),
        wait_p50_us: micros(lock.wait_p50),
        wait_p99_us: micros(lock.wait_p99),
        waiting: lock.waiting,
        utilization: lock.utilization.map(|share| round(share, 6)),
    };
    own.chain(replicas).map(lock_row).collect()
}

/// Rows of a run's servers, if there are several.
fn replicas(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Vec<ReplicaRow> {
    let replica_row = |(index, server): (usize, &RunOutcome)| ReplicaRow {
        replica: index as u32 + 1,
        run: run.run_key(),
        workload: run.workload_key(),
        attempts_rps: per_second(server.counts.offered, server.measured),
        throughput_rps: per_second(server.counts.completed, server.measured),
        p99_us: micros(server.latency.p99),
        drop_rate: share(server.server.rejected, server.server.received),
        expiry_rate: share(server.counts.expired + server.counts.overflowed, server.counts.offered),
        cpu_utilization: round(server.cpu_utilization, 6),
    };
    outcome.replicas.iter().enumerate().map(replica_row).collect()
}

/// Rows of a graph's services.
fn services(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Vec<ServiceRow> {
    let service_row = |service: &ServiceOutcome| ServiceRow {
        name: service.name.clone(),
        run: run.run_key(),
        workload: run.workload_key(),
        objective_us: micros(service.objective),
        received_rps: per_second(service.received, outcome.measured),
        p50_us: micros(service.latency.p50),
        p99_us: micros(service.latency.p99),
        drop_rate: share(service.rejected, service.received),
        cpu_utilization: round(service.cpu_utilization, 6),
    };
    outcome.graph.iter().flat_map(|graph| &graph.services).map(service_row).collect()
}

/// Rows of the kinds of a run's requests, if there are several.
fn kinds(run: &PlannedRun<'_>, outcome: &RunOutcome) -> Vec<KindRow> {
    let kind_row = |(kind, of_kind): (&RequestKind, &KindOutcome)| {
        let counts = &of_kind.counts;
        KindRow {
            kind: of_kind.name.clone(),
            run: run.run_key(),
            workload: run.workload_key(),
            tenant: kind.tenant.0,
            class: kind.class.map(u32::from),
            cost: kind.cost.0,
            objective_us: micros(of_kind.objective),
            offered_rps: per_second(counts.offered, outcome.measured),
            goodput_rps: per_second(counts.good, outcome.measured),
            cost_in_time: rate(counts.good as f64 * f64::from(kind.cost.0) / outcome.measured.as_secs_f64()),
            in_time_rate: share(counts.good, counts.offered),
            refused_rate: share(counts.dropped, counts.offered),
            client_rate: share(counts.client_total() + counts.timed_out, counts.offered),
            late_rate: share(counts.completed - counts.good, counts.offered),
            p50_us: micros(of_kind.latency.p50),
            p99_us: micros(of_kind.latency.p99),
        }
    };
    run.config.kinds.0.iter().zip(&outcome.kinds).map(kind_row).collect()
}

/// Row of a window of a run's time series.
fn window_row(run: &PlannedRun<'_>, window: &WindowOutcome) -> WindowRow {
    let (clients, state) = (&window.clients, &window.state);
    WindowRow {
        run: run.run_key(),
        start_s: round(clients.start.0 as f64 / 1e9, 9),
        length_ms: round(window.length.as_secs_f64() * 1e3, 6),
        demand_rps: rate(run.demand_at(clients.start).0),
        throughput_rps: per_second(clients.counts.completed, window.length),
        goodput_rps: per_second(clients.counts.good, window.length),
        p99_us: micros(clients.latency.p99),
        drops_rps: per_second(clients.counts.dropped, window.length),
        reject_delay_mean_us: round(clients.reject_delay_mean_ns / 1e3, 3),
        delay_us: micros(state.delay),
        credit_pool: state.gauges.credit_pool.map(|credits| credits as f64),
        credits_issued: state.gauges.credits_issued.map(|credits| credits as f64),
        cores: window.cores.map(|cores| round(cores, 4)),
        setup: window.setup.map(|setup| setup.to_string()),
        threads: window.setup.map(|setup| setup.threads()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_at_most_all() {
        assert_eq!([(27, 25), (1, 4), (0, 0)].map(|(part, whole)| share(part, whole)), [1.0, 0.25, 0.0]);
    }
}
