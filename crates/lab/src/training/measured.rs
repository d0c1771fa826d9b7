//! A tier on this machine as a bench for training: its threads on the server's CPUs, clients and leaves, which wait instead of computing, on
//! another.

use super::{Bench, Sample};
use crate::error::RunError;
use leeward_control::budget::Budget;
use leeward_control::params::Params;
use leeward_control::registry::Registry;
use leeward_control::threading::Threading;
use leeward_control::units::{Nanos, Rate};
use leeward_plant::measured::WINDOW;
use leeward_plant::run::{RunReport, RunSpec, run};
use leeward_plant::{Placement, RealError, RealTier};
use leeward_sim::SimConfig;
use leeward_sim::config::Segment;
use leeward_sim::threads::model::{Gather, Sharing};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Time before anything is measured: connections are made, pages touched.
const WARMUP: Nanos = Nanos::from_millis(200);
/// How often a load is offered whose clients were late for it.
const ATTEMPTS: u64 = 3;
/// Shortest time that is measured: some looks at the server are needed.
const SHORTEST: Nanos = Nanos::from_millis(400);

/// A tier, without its threading.
pub struct MeasuredTier {
    config: SimConfig,
    placement: Placement,
    registry: Registry,
}

impl MeasuredTier {
    /// The tier of `config` on so many CPUs of this machine. What only the simulator has, sharded fronts and helper threads, is left out.
    ///
    /// # Errors
    /// Too few CPUs.
    pub fn new(config: SimConfig, cpus: u32) -> Result<Self, RunError> {
        let failed = |source| RunError::Real { run: "choosing CPUs".into(), source };
        Ok(MeasuredTier { config, placement: Placement::choose(cpus).map_err(failed)?, registry: Registry::builtin() })
    }
}

impl Bench for MeasuredTier {
    fn takes_real_time(&self) -> bool {
        true
    }

    fn measure(
        &self,
        setup: Threading,
        load: Rate,
        requests: u64,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<Sample, RunError> {
        let Some(mut tier) = self.config.tier.clone() else { return Err(RunError::NotATier) };
        tier.threading = setup;
        (tier.policy, tier.front, tier.gather) = (None, Sharing::Shared, Gather::Own);
        let failed = |source| match source {
            RealError::Cancelled => RunError::Cancelled,
            source => RunError::Real { run: format!("{setup} at {:.0}/s", load.0), source },
        };
        let served = RealTier::new(&tier, &self.placement, self.config.slo).map(Arc::new).map_err(failed)?.served();
        let mut workload = self.config.workload.clone();
        workload.demand = vec![Segment { from: Nanos::ZERO, rate: load }];
        let measured = Nanos::from_secs_f64(requests as f64 / load.0).max(SHORTEST);
        let spec = RunSpec {
            placement: &self.placement,
            served: &served,
            budget: Budget::UNLIMITED,
            algorithm: self.registry.find("none")?,
            params: &Params::default(),
            rtt: self.config.network.rtt,
            slo: self.config.slo,
            workload: &workload,
            seed: self.config.seed.wrapping_add(u64::from(round)),
            warmup: WARMUP,
            duration: WARMUP + measured,
            window: WINDOW,
            fine_window: None,
            audience: None,
        };
        // A machine's moods make clients late for a moment; a load that they can't offer makes them late each time.
        let mut report = run(&spec, stop, |_| ()).map_err(failed)?;
        for again in 1..ATTEMPTS {
            if report.load.adherence.kept {
                break;
            }
            let seed = spec.seed.wrapping_add(again << 32);
            report = run(&RunSpec { seed, ..spec }, stop, |_| ()).map_err(failed)?;
        }
        match report.violations.first() {
            Some(violation) => {
                let run = format!("{setup} at {:.0}/s", load.0);
                Err(RunError::Violation { run, violation: violation.clone() })
            }
            None => Ok(sample(&report)),
        }
    }
}

fn sample(report: &RunReport) -> Sample {
    let load = &report.load;
    // Where clients were late, the latencies are theirs: the load was not offered, so nobody has sustained it.
    let completed = if load.adherence.kept { load.measured.completed } else { 0 };
    let busy = match (report.samples.first(), report.samples.last()) {
        (Some(first), Some(last)) if last.at > first.at => {
            let time = (last.at - first.at).as_secs_f64();
            report.cores as f64 - (last.idle.saturating_sub(first.idle)).as_secs_f64() / time
        }
        _ => 0.0,
    };
    Sample { issued: load.measured.offered, completed, latency: load.latency, cpu: busy.max(0.0) }
}
