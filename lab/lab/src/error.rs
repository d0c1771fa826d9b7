//! Errors of runs. Does not contain errors in scenario files (`scenario::error`).

use leeward_core::registry::RegistryError;
use leeward_plant::{PlantError, RealError};
use leeward_sim::SimError;

/// An error that prevents results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The caller cancelled the run.
    #[error("cancelled")]
    Cancelled,
    /// The plant is unknown.
    #[error("unknown plant `{0}`; accepted: sim, real")]
    Plant(String),
    /// A search on the real plant: it runs the scenario hundreds of times.
    #[error("parameters are searched in the simulator only; run the scenario with what it finds on the real plant")]
    SimulatorOnly,
    /// A real run failed.
    #[error("{run}: {source}")]
    Real {
        /// Name of the run.
        run: String,
        /// Cause.
        source: RealError,
    },
    /// The scenario needs a feature that the real server or network does not have.
    #[error("{key}: {reason}; leave it out, or run it in the simulator")]
    RealUnsupported {
        /// Key of the scenario.
        key: &'static str,
        /// Reason.
        reason: &'static str,
    },
    /// The scenario needs a service that can't be simulated.
    #[error("`{0}` is measured, not simulated: run it with --plant real")]
    SimUnsupported(String),
    /// A threading that a running tier can't change to or from.
    #[error("{0} can't be changed to or from while a tier serves; accepted: setups such as SIP1 and SDB1-16")]
    FixedThreading(String),
    /// Training of a scenario without a tier.
    #[error("not a tier: there is no threading to train; accepted: a scenario with a section [tier]")]
    NotATier,
    /// A tier that the scenario does not have.
    #[error("there is no tier `{name}`; accepted: {accepted}")]
    Tier {
        /// Requested name.
        name: String,
        /// Known names.
        accepted: String,
    },
    /// A label that the scenario does not have.
    #[error("unknown controller label `{label}`; accepted: {accepted}")]
    Label {
        /// Requested label.
        label: String,
        /// Known labels.
        accepted: String,
    },
    /// The controller has no parameter with values to search.
    #[error("controller `{0}` has no tuning parameters")]
    Untunable(String),
    /// The controller is not in the registry of the run.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A run failed.
    #[error("{run}: {source}")]
    Sim {
        /// Name of the run.
        run: String,
        /// Cause.
        source: SimError,
    },
    /// The simulator's accounting invariants are violated: a defect of the simulator or of a
    /// controller. Its results can't be trusted.
    #[error("{run}: conservation check failed, please report this: {violation}")]
    Violation {
        /// Name of the run.
        run: String,
        /// The first violation found.
        violation: String,
    },
    /// The training produced no curves.
    #[error("no curves: {0}; train at lower loads, for longer, or other setups")]
    Training(String),
    /// The thread pool could not be created.
    #[error("threads: {0}")]
    Threads(String),
}

impl RunError {
    /// Error of the run `run`, which failed on its plant.
    pub(crate) fn from_plant(run: String, error: PlantError) -> Self {
        match error {
            PlantError::Simulated(SimError::Stopped) => RunError::Cancelled,
            PlantError::Simulated(source) => RunError::Sim { run, source },
            PlantError::Measured(RealError::Cancelled) => RunError::Cancelled,
            PlantError::Measured(source) => RunError::Real { run, source },
        }
    }

    /// Whether the input caused the error, so that other input helps. If not, an operation failed
    /// during the run.
    pub fn is_input(&self) -> bool {
        match self {
            RunError::Cancelled | RunError::Threads(_) | RunError::Violation { .. } => false,
            RunError::Real { source, .. } => source.is_input(),
            // A simulation fails only because of an impossible configuration.
            _ => true,
        }
    }
}
