//! A tier on this machine as a bench for training: its threads run on the server's CPUs, clients
//! and leaves on another CPU. Leaves wait instead of computing.

use super::measurement::UNKNOWN_NOISE;
use super::{Bench, Measurement, SEED_OFFSET, Trial};
use crate::error::RunError;
use leeward_core::budget::Budget;
use leeward_core::params::Params;
use leeward_core::registry::Registry;
use leeward_core::units::Nanos;
use leeward_plant::measured::WINDOW;
use leeward_plant::run::{RunReport, RunSpec, run};
use leeward_plant::{InProcessService, Placement, RealError, RealTier};
use leeward_sim::SimConfig;
use leeward_sim::config::{Segment, Workload};
use leeward_sim::threads::model::{Gather, Sharing};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Time before the measurement for connections and page faults.
const WARMUP: Nanos = Nanos::from_millis(200);
/// Maximum number of attempts at a load for which the clients were late.
const ATTEMPTS: u64 = 3;
/// Minimum measured time; the server must be sampled several times.
const MIN_DURATION: Nanos = Nanos::from_millis(400);

/// A tier without threading.
pub struct MeasuredTier {
    config: SimConfig,
    placement: Placement,
    registry: Registry,
}

impl MeasuredTier {
    /// Creates the tier of `config` on these CPUs. Sharded fronts and helper threads, which only
    /// the simulator supports, are left out.
    pub fn new(config: SimConfig, placement: Placement) -> Self {
        MeasuredTier { config, placement, registry: leeward_controllers::builtin() }
    }
}

impl Bench for MeasuredTier {
    fn is_real_time(&self) -> bool {
        true
    }

    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, RunError> {
        let Some(mut tier) = self.config.tier.clone() else { return Err(RunError::NotATier) };
        (tier.front, tier.gather) = (Sharing::Shared, Gather::Own);
        (tier.threading, tier.policy) = (trial.candidate.initial_setup(), trial.candidate.policy());
        let failed = |source| RunError::Real { run: trial.to_string(), source };
        let served =
            RealTier::new(&tier, &self.placement, self.config.slo).map(Arc::new).map_err(failed)?.into_service();
        let offered = OfferedLoad {
            placement: &self.placement,
            service: &served,
            workload: &self.config.workload,
            rtt: self.config.network.rtt,
            slo: self.config.slo,
            seed: self.config.seed.wrapping_add(SEED_OFFSET).wrapping_add(u64::from(trial.round)),
        };
        offered.measure(trial, &self.registry, stop)
    }
}

/// A server under load from clients of this machine.
pub(super) struct OfferedLoad<'a> {
    pub(super) placement: &'a Placement,
    pub(super) service: &'a InProcessService,
    /// Clients and their arrivals; each measurement sets the demand.
    pub(super) workload: &'a Workload,
    pub(super) rtt: Nanos,
    pub(super) slo: Nanos,
    pub(super) seed: u64,
}

impl OfferedLoad<'_> {
    /// Makes the measurement.
    pub(super) fn measure(
        &self,
        trial: &Trial<'_>,
        registry: &Registry,
        stop: &AtomicBool,
    ) -> Result<Measurement, RunError> {
        let Trial { load, requests, .. } = *trial;
        let failed = |source| match source {
            RealError::Cancelled => RunError::Cancelled,
            source => RunError::Real { run: trial.to_string(), source },
        };
        let workload = Workload { demand: vec![Segment { from: Nanos::ZERO, rate: load }], ..self.workload.clone() };
        let measured = Nanos::from_secs_f64(requests as f64 / load.0).max(MIN_DURATION);
        let spec = RunSpec {
            placement: self.placement,
            service: self.service,
            budget: Budget::UNLIMITED,
            algorithm: registry.find("none")?,
            params: &Params::default(),
            rtt: self.rtt,
            slo: self.slo,
            workload: &workload,
            seed: self.seed,
            warmup: WARMUP,
            duration: WARMUP + measured,
            window: WINDOW,
            fine_window: None,
            observers: None,
        };
        // Variation of the machine makes clients late for a moment; a load beyond their ability
        // makes them late each time.
        let mut report = run(&spec, stop, |_| ()).map_err(failed)?;
        for again in 1..ATTEMPTS {
            if report.load.adherence.kept {
                break;
            }
            let seed = spec.seed.wrapping_add(again << 32);
            report = run(&RunSpec { seed, ..spec }, stop, |_| ()).map_err(failed)?;
        }
        match report.violations.first() {
            Some(violation) => Err(RunError::Violation { run: trial.to_string(), violation: violation.clone() }),
            None => Ok(sample(&report)),
        }
    }
}

fn sample(report: &RunReport) -> Measurement {
    let load = &report.load;
    // With late clients the latencies are the clients' own and the load was not offered, so it does
    // not count as sustained.
    let late = !load.adherence.kept;
    let completed = if late { 0 } else { load.measured.completed };
    let busy = match (report.samples.first(), report.samples.last()) {
        (Some(first), Some(last)) if last.at > first.at => {
            let time = (last.at - first.at).as_secs_f64();
            report.cores as f64 - (last.idle.saturating_sub(first.idle)).as_secs_f64() / time
        }
        _ => 0.0,
    };
    Measurement {
        issued: load.measured.offered,
        completed,
        latency: load.latency,
        cpu: busy.max(0.0),
        clients_late: late,
        noise: UNKNOWN_NOISE,
    }
}
