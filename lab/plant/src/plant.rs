//! A plant runs a scenario once and returns the outcome, in the same terms for every plant. Does
//! not contain scenarios, plans or rows of results.

use crate::error::RealError;
use crate::run::Snapshot;
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_core::registry::Algorithm;
use leeward_outcome::RunOutcome;
use leeward_sim::{SimConfig, SimError};
use std::sync::atomic::AtomicBool;

/// Input of a run, for any plant.
#[derive(Clone, Copy, Debug)]
pub struct PlantRun<'a> {
    /// The controller.
    pub algorithm: &'a Algorithm,
    /// Parameters of the controller, as written.
    pub params: &'a [(String, RawParam)],
    /// Workload, objective, times and seed; for the simulator, also the machine.
    pub config: &'a SimConfig,
    /// Rule for a request's queueing budget.
    pub budget: BudgetRule,
}

/// Source of a request's queueing budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRule {
    /// The configured lock policy sets the budget; without it, there is none.
    Configured,
    /// The budget is the objective less network and service (thesis §2.3.2).
    ///
    /// Only a plant that measures the service knows it.
    FromObjective,
}

/// Makes runs of scenarios.
pub trait Plant {
    /// Makes one run.
    ///
    /// A run in wall time calls `watch` as it proceeds, and ends when `stop` is set. `watch` runs
    /// on the clients' CPU and must be quick.
    ///
    /// # Errors
    ///
    /// See [`PlantError`]. A failed conservation check is no error: see [`RunOutcome::violations`].
    fn run(
        &self,
        run: &PlantRun<'_>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Snapshot),
    ) -> Result<RunOutcome, PlantError>;
}

/// Reason for which a plant has not made a run.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// The simulator rejects the run.
    #[error(transparent)]
    Simulated(#[from] SimError),
    /// The machine can't make the run, or something failed on the way.
    #[error(transparent)]
    Measured(#[from] RealError),
}

impl PlantRun<'_> {
    /// The controller's parameters, checked.
    pub(crate) fn checked_params(&self) -> Result<Params, ParamError> {
        let pairs: Vec<(&str, RawParam)> = self.params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        self.algorithm.params(&pairs)
    }
}
