//! The measured plant: a run is a server and its clients on the CPUs of this machine. The reports
//! of both ends become one outcome; a value that a machine does not report stays `None`.

use crate::error::RealError;
use crate::machine::Machine;
use crate::placement::Placement;
use crate::plant::{BudgetRule, Plant, PlantError, PlantRun};
use crate::run::{self, RunReport, RunSpec, ServerObservers, ServerSample, Snapshot};
use crate::tier::RealTier;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_load::LoadReport;
use leeward_outcome::{FineWindow, RunOutcome, ServerCounts, ServerState, ThreadOutcome, WindowOutcome};
use leeward_rpc::server::RequestCounts;
use leeward_services::backend::InProcessService;
use leeward_sim::SimConfig;
use leeward_sim::config::LockPolicy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Window length of a run without windows of its own; a live view needs some.
pub const WINDOW: Nanos = Nanos::from_millis(100);

/// This machine, its measurements and its service.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredPlant<'a> {
    /// CPUs of the two ends.
    pub placement: &'a Placement,
    /// Service of the server.
    pub service: &'a InProcessService,
    /// Measurements of the machine.
    pub machine: &'a Machine,
    /// Observers of the server of a run.
    pub observers: Option<&'a ServerObservers>,
}

impl Plant for MeasuredPlant<'_> {
    fn run(
        &self,
        run: &PlantRun<'_>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Snapshot),
    ) -> Result<RunOutcome, PlantError> {
        let params = run.checked_params().map_err(RealError::Params)?;
        let config = run.config;
        let tier = config.tier.as_deref().map(|tier| RealTier::new(tier, self.placement, config.slo)).transpose()?;
        let tier = tier.map(Arc::new);
        let served = tier.clone().map(RealTier::into_service);
        let spec = RunSpec {
            placement: self.placement,
            service: served.as_ref().unwrap_or(self.service),
            budget: self.budget(run),
            algorithm: run.algorithm,
            params: &params,
            rtt: config.network.rtt,
            slo: config.slo,
            workload: &config.workload,
            seed: config.seed,
            warmup: config.warmup,
            duration: config.duration,
            window: config.window.unwrap_or(WINDOW),
            fine_window: config.fine_window,
            observers: self.observers,
        };
        let report = run::run(&spec, stop, watch)?;
        let threads = tier.and_then(|tier| tier.switch()).map(|switch| ThreadOutcome {
            setup: switch.threading().setup(),
            switches: switch.counts().switches,
            ..ThreadOutcome::default()
        });
        Ok(RunOutcome { threads, ..outcome(report, config, self.service.is_lock_bound())? })
    }
}

impl MeasuredPlant<'_> {
    /// Queueing budget of a request in this run.
    fn budget(&self, run: &PlantRun<'_>) -> Budget {
        match (run.budget, run.config.locks.acquire) {
            // Thesis §2.3.2: the target, less the 99th percentiles of network and service.
            (BudgetRule::FromObjective, _) => {
                let service = self.machine.unloaded.map_or(Nanos::ZERO, |alone| alone.p99);
                Budget::from_target_delay(run.config.slo, self.machine.rtt_p99, service)
            }
            (BudgetRule::Configured, LockPolicy::UnlessCongested { budget, .. }) => Budget::new(budget),
            (BudgetRule::Configured, _) => Budget::UNLIMITED,
        }
    }
}

/// Joins the reports of both ends of a run.
fn outcome(report: RunReport, config: &SimConfig, has_locks: bool) -> Result<RunOutcome, RealError> {
    let RunReport { load, server: _, samples, locks, cores, final_gauges: final_state, violations } = report;
    let (from, to) = (config.warmup, config.duration);
    let (first, last) = boundary_samples(&samples, from, to).ok_or(RealError::TooShort)?;
    let windows = match config.window {
        Some(length) => windows(&load, &samples, length, to),
        None => Vec::new(),
    };
    let is_inside = |window: &FineWindow| window.start.0 < to.0;
    Ok(RunOutcome {
        settling: None,
        measured: to.saturating_sub(from),
        counts: load.measured,
        totals: load.totals,
        server: server_counts(&last.counts.since(&first.counts)),
        uses_locks: has_locks,
        latency: load.latency,
        reject_delay: load.reject_delay,
        waiting: None,
        cpu_utilization: busy_share(first, last, cores),
        mean_in_server: None,
        mean_sojourn_ns: load.server_sojourn.mean_ns,
        violations,
        locks,
        windows,
        fine_windows: load.fine.into_iter().take_while(is_inside).collect(),
        gauges: final_state,
        events: None,
        cores: None,
        failure_delay: None,
        kinds: Vec::new(),
        lateness: (!load.adherence.kept).then_some(load.adherence.lateness),
        replicas: Vec::new(),
        threads: None,
        graph: None,
    })
}

/// Samples of the server nearest to the ends of the measured part; `None` if these are not two.
fn boundary_samples(samples: &[ServerSample], from: Nanos, to: Nanos) -> Option<(&ServerSample, &ServerSample)> {
    let nearest = |at: Nanos| samples.iter().min_by_key(|sample| sample.at.0.abs_diff(at.0));
    let (first, last) = (nearest(from)?, nearest(to)?);
    (first.at < last.at).then_some((first, last))
}

/// Converts the real server's counters to common ones.
fn server_counts(counts: &RequestCounts) -> ServerCounts {
    ServerCounts {
        received: counts.received,
        rejected: counts.rejected,
        refused_at_locks: counts.rejected_by_lock,
        foreseen: 0,
        rx_messages: counts.received + counts.demands,
        tx_messages: counts.completed + counts.rejected + counts.credits,
    }
}

/// Share of time in which the server's cores were busy between two samples, 0 to 1.
fn busy_share(first: &ServerSample, last: &ServerSample, cores: usize) -> f64 {
    let time = last.at.saturating_sub(first.at).0 as f64 * cores as f64;
    let idle = last.idle.saturating_sub(first.idle).0 as f64;
    if time > 0.0 { (1.0 - idle / time).clamp(0.0, 1.0) } else { 0.0 }
}

/// Time series up to the run's end: the clients' windows, each with the server's sample after its
/// end.
fn windows(load: &LoadReport, samples: &[ServerSample], length: Nanos, end: Nanos) -> Vec<WindowOutcome> {
    let state_after = |window_end: Time| {
        let index = samples.partition_point(|sample| sample.at.0 < window_end.0);
        samples.get(index).or(samples.last()).map(|sample| ServerState { gauges: sample.gauges, delay: sample.delay })
    };
    let inside = load.windows.iter().filter(|window| window.start.0 < end.0);
    inside
        .filter_map(|window| {
            let state = state_after(window.start + length)?;
            Some(WindowOutcome { length, clients: *window, server: None, state, cores: None, setup: None })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::server::Gauges;

    fn sample(at_ms: u64, received: u64, dropped: u64, idle_ms: u64) -> ServerSample {
        ServerSample {
            at: Nanos::from_millis(at_ms),
            gauges: Gauges { credit_pool: Some(at_ms as i64), ..Gauges::default() },
            delay: Nanos(at_ms),
            counts: RequestCounts {
                received,
                rejected: dropped,
                rejected_by_lock: dropped / 2,
                demands: 1,
                ..RequestCounts::default()
            },
            idle: Nanos::from_millis(idle_ms),
        }
    }

    #[test]
    fn server_counts_are_the_difference_of_two_samples() {
        let samples =
            [sample(10, 100, 10, 5), sample(21, 300, 30, 10), sample(49, 900, 70, 24), sample(52, 1_000, 80, 25)];
        let (first, last) = boundary_samples(&samples, Nanos::from_millis(20), Nanos::from_millis(50)).unwrap();
        assert_eq!((first.at, last.at), (Nanos::from_millis(21), Nanos::from_millis(49)));
        let counts = server_counts(&last.counts.since(&first.counts));
        assert_eq!((counts.received, counts.rejected, counts.refused_at_locks, counts.rx_messages), (600, 40, 20, 600));
        assert_eq!(busy_share(first, last, 1), 0.5);
        assert_eq!(
            boundary_samples(&samples[..1], Nanos::from_millis(20), Nanos::from_millis(50)),
            None,
            "no zero is made up"
        );
        assert_eq!(boundary_samples(&[], Nanos::ZERO, Nanos(1)), None);
    }
}
