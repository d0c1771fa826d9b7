//! The simulated plant: a run is a pure function of its input. Does not contain the simulation
//! (`leeward-sim`).

use crate::plant::{BudgetRule, Plant, PlantError, PlantRun};
use crate::run::Snapshot;
use leeward_outcome::RunOutcome;
use leeward_sim::{SimError, simulate_until};
use std::sync::atomic::AtomicBool;

/// The discrete-event simulator. It calls no watcher, because its runs take no wall time to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulatedPlant;

impl Plant for SimulatedPlant {
    fn run(
        &self,
        run: &PlantRun<'_>,
        stop: &AtomicBool,
        _watch: &mut dyn FnMut(&Snapshot),
    ) -> Result<RunOutcome, PlantError> {
        // Requests that take no locks need no budget.
        if run.budget == BudgetRule::FromObjective && !run.config.application.is_plain() {
            return Err(
                SimError::Config("a budget that follows from a measured service has to be measured".into()).into()
            );
        }
        let params = run.checked_params().map_err(SimError::Params)?;
        Ok(simulate_until(run.config, run.algorithm, &params, stop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::units::Nanos;
    use leeward_sim::SimConfig;
    use leeward_sim::config::Application;
    use leeward_workload::ServiceTime;

    fn run(
        application: Application,
        params: &[(String, RawParam)],
        budget: BudgetRule,
    ) -> Result<RunOutcome, PlantError> {
        let registry = leeward_controllers::builtin();
        let config = SimConfig {
            application,
            warmup: Nanos::from_millis(2),
            duration: Nanos::from_millis(4),
            ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 0.5)
        };
        let run = PlantRun { algorithm: registry.find("breakwater").unwrap(), params, config: &config, budget };
        SimulatedPlant.run(&run, &AtomicBool::new(false), &mut |_| {})
    }

    #[test]
    fn a_simulated_run_has_the_simulators_outcome() {
        let outcome = run(Application::default(), &[], BudgetRule::Configured).unwrap();
        assert!(outcome.totals.is_balanced() && outcome.counts.completed > 0, "{:?}", outcome.totals);
        assert!(outcome.waiting.is_some() && outcome.events.is_some() && outcome.locks.is_empty());
    }

    #[test]
    fn a_cancelled_run_ends_early() {
        let registry = leeward_controllers::builtin();
        // The run would take minutes.
        let config = SimConfig {
            duration: Nanos::from_millis(1_000_000),
            ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), 0.5)
        };
        let run = PlantRun {
            algorithm: registry.find("breakwater").unwrap(),
            params: &[],
            config: &config,
            budget: BudgetRule::Configured,
        };
        let result = SimulatedPlant.run(&run, &AtomicBool::new(true), &mut |_| {});
        assert!(matches!(result, Err(PlantError::Simulated(SimError::Stopped))), "{result:?}");
    }

    #[test]
    fn unsupported_simulations_are_rejected() {
        let run_from_objective = |application| run(application, &[], BudgetRule::FromObjective);
        assert!(matches!(
            run_from_objective(Application::one_lock(1.0, 0.5)),
            Err(PlantError::Simulated(SimError::Config(_)))
        ));
        assert!(run_from_objective(Application::default()).is_ok());
        let wrong = [("no such parameter".to_string(), RawParam::Integer(1))];
        let result = run(Application::default(), &wrong, BudgetRule::Configured);
        assert!(matches!(result, Err(PlantError::Simulated(SimError::Params(_)))));
    }
}
