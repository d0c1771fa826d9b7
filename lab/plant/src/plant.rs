//! A plant: it makes one run of a scenario and returns the outcome, in the same terms for every plant. Scenarios, plans
//! and rows of results are elsewhere.

use crate::error::RealError;
use crate::run::Snapshot;
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_core::registry::Algorithm;
use leeward_outcome::RunOutcome;
use leeward_sim::{SimConfig, SimError};
use std::sync::atomic::AtomicBool;

/// A run, as any plant is asked for it.
#[derive(Clone, Copy, Debug)]
pub struct PlantRun<'a> {
    /// The controller.
    pub algorithm: &'a Algorithm,
    /// Its parameters, as written.
    pub params: &'a [(String, RawParam)],
    /// Workload, objective, times and seed; for a simulated plant also the machine.
    pub config: &'a SimConfig,
    /// Budget of a request for queues.
    pub budget: BudgetRule,
}

/// Where a request's budget comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRule {
    /// The budget is written in the way in which locks are acquired, or there is none.
    Configured,
    /// The budget is what the objective leaves of network and service (thesis §2.3.2): only a plant that measures the
    /// service knows.
    FromObjective,
}

/// Something that makes runs.
pub trait Plant {
    /// Makes one run. A run that takes wall time tells `watch` of itself as it goes and ends when `stop` is set; `watch` is
    /// called on the clients' CPU and must be quick.
    ///
    /// # Errors
    /// See [`PlantError`]. Books that do not balance are no error: see [`RunOutcome::violations`].
    fn run(
        &self,
        run: &PlantRun<'_>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Snapshot),
    ) -> Result<RunOutcome, PlantError>;
}

/// Why a plant has not made a run.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// The simulator refuses it.
    #[error(transparent)]
    Simulated(#[from] SimError),
    /// The machine refuses it, or something failed on the way.
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
