//! A simulated tier as a bench for training.

use super::{Bench, MeasuredTier, Measurement, SEED_OFFSET, Trial};
use crate::error::RunError;
use crate::plan::plan;
use crate::scenario::Scenario;
use leeward_core::params::Params;
use leeward_core::registry::Registry;
use leeward_core::units::Nanos;
use leeward_plant::Placement;
use leeward_sim::config::{Arrivals, Segment};
use leeward_sim::{SimConfig, simulate_until};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// Warm-up: a part of the measured time, and its minimum.
const WARMUP: (f64, Nanos) = (0.1, Nanos::from_millis(20));

/// A tier without threading.
#[derive(Clone, Debug)]
pub struct SimulatedTier {
    name: String,
    config: SimConfig,
    registry: Registry,
}

impl SimulatedTier {
    /// Creates the tier of `config`; each measurement sets setup, demand, duration and seed.
    pub fn new(config: SimConfig) -> Self {
        SimulatedTier { name: "tier".into(), config, registry: leeward_controllers::builtin() }
    }

    /// Creates the tier `name` of a scenario, or its first tier; its clients use `arrivals`.
    ///
    /// # Errors
    /// A scenario without tiers, or without this tier.
    pub fn from_scenario(
        scenario: &Scenario,
        name: Option<&str>,
        arrivals: Arrivals,
        seed: u64,
    ) -> Result<Self, RunError> {
        let registry = leeward_sim::oracle::registry();
        let runs = plan(scenario, &registry, seed)?;
        let mut tiers = runs.iter().filter(|run| run.config.tier.is_some());
        let found = tiers.clone().find(|run| name.is_none_or(|name| run.service.text == name));
        let Some(run) = found else {
            let mut names: Vec<String> = tiers.by_ref().map(|run| run.service.text.clone()).collect();
            let mut seen = BTreeSet::new();
            names.retain(|name| seen.insert(name.clone()));
            let requested = name.unwrap_or("tier").chars().take(60).collect();
            return Err(if names.is_empty() {
                RunError::NotATier
            } else {
                RunError::Tier { name: requested, accepted: names.join(", ") }
            });
        };
        let mut config = run.config.clone();
        config.workload.arrivals = arrivals;
        Ok(SimulatedTier { name: run.service.text.clone(), ..SimulatedTier::new(config) })
    }

    /// The same tier, measured on `cpus` CPUs of this machine.
    ///
    /// # Errors
    /// Too few CPUs.
    pub fn to_measured(&self, cpus: u32) -> Result<MeasuredTier, RunError> {
        let failed = |source| RunError::Real { run: "choosing CPUs".into(), source };
        Ok(MeasuredTier::new(self.config.clone(), Placement::choose(cpus).map_err(failed)?))
    }

    /// Name of the tier in its scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description of the simulated machine.
    pub fn machine(&self) -> String {
        format!("simulated, {} CPUs", self.config.tier.as_ref().map_or(0, |tier| tier.cpus))
    }

    fn config(&self, trial: &Trial<'_>) -> Result<SimConfig, RunError> {
        let Some(mut tier) = self.config.tier.clone() else { return Err(RunError::NotATier) };
        let setup = trial.candidate.initial_setup();
        if setup.setup().is_none() {
            return Err(RunError::SimUnsupported(setup.to_string()));
        }
        (tier.threading, tier.policy) = (setup, trial.candidate.policy());
        let measured = Nanos::from_secs_f64(trial.requests as f64 / trial.load.0);
        let warmup = measured.scale(WARMUP.0).max(WARMUP.1);
        let mut workload = self.config.workload.clone();
        workload.demand = vec![Segment { from: Nanos::ZERO, rate: trial.load }];
        // All setups get the same requests at a load.
        let seed = self.config.seed.wrapping_add(SEED_OFFSET).wrapping_add(u64::from(trial.round));
        Ok(SimConfig {
            tier: Some(tier),
            workload,
            warmup,
            duration: warmup + measured,
            window: None,
            fine_window: None,
            seed,
            ..self.config.clone()
        })
    }
}

impl Bench for SimulatedTier {
    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, RunError> {
        let (config, none) = (self.config(trial)?, self.registry.find("none")?);
        let outcome = simulate_until(&config, none, &Params::default(), stop)
            .map_err(|source| RunError::from_plant(trial.to_string(), source.into()))?;
        match outcome.violations.first() {
            Some(violation) => Err(RunError::Violation { run: trial.to_string(), violation: violation.clone() }),
            None => Ok(Measurement::from_outcome(&outcome, config.tier.as_ref().map_or(1, |tier| tier.cpus))),
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }
}
