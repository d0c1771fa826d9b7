//! Why a scenario has no results. What is wrong with a scenario file is `scenario::error`'s.

use leeward_core::registry::RegistryError;
use leeward_plant::{PlantError, RealError};
use leeward_sim::SimError;

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// This plant is not known.
    #[error("unknown plant `{0}`; accepted: sim, real")]
    Plant(String),
    /// A search runs the scenario hundreds of times.
    #[error("parameters are searched in the simulator only; run the scenario with what it finds on the real plant")]
    SimulatorOnly,
    /// A real run failed.
    #[error("{run}: {source}")]
    Real {
        /// Which.
        run: String,
        /// Why.
        source: RealError,
    },
    /// The scenario asks for something that this machine's server and network don't have.
    #[error("{key}: {reason}; leave it out, or run it in the simulator")]
    RealUnsupported {
        /// Key of the scenario that was asked for.
        key: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// The scenario asks for a service that the simulator doesn't have.
    #[error("`{0}` is measured, not simulated: run it with --plant real")]
    SimUnsupported(String),
    /// A service's tier is measured under models that it can change to.
    #[error("{0} can't be changed to or from while a tier serves; accepted: setups such as SIP1 and SDB1-16")]
    FixedThreading(String),
    /// Only a tier has threading to train.
    #[error("not a tier: there is no threading to train; accepted: a scenario with a section [tier]")]
    NotATier,
    /// A tier that the scenario doesn't have.
    #[error("there is no tier `{name}`; accepted: {accepted}")]
    Tier {
        /// Name that was asked for.
        name: String,
        /// Names that there are.
        accepted: String,
    },
    /// A label that the scenario doesn't have.
    #[error("unknown controller label `{label}`; accepted: {accepted}")]
    Label {
        /// Label that was asked for.
        label: String,
        /// Labels that there are.
        accepted: String,
    },
    /// Nothing to search: the controller has no parameter with values worth trying.
    #[error("controller `{0}` has no tuning parameters")]
    Untunable(String),
    /// The controller is not in the registry the run was given.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A run failed.
    #[error("{run}: {source}")]
    Sim {
        /// Which.
        run: String,
        /// Why.
        source: SimError,
    },
    /// The simulator's books don't balance: a defect of it or of a controller. Nothing it says can be trusted.
    #[error("{run}: the books do not balance, please report this: {violation}")]
    Violation {
        /// Which.
        run: String,
        /// The first contradiction found.
        violation: String,
    },
    /// Training gave no curves.
    #[error("no curves: {0}; train at lower loads, for longer, or other setups")]
    Training(String),
    /// The pool of threads could not be made.
    #[error("threads: {0}")]
    Threads(String),
}

impl RunError {
    /// The error of the run called `run`, which its plant has not made.
    pub(crate) fn from_plant(run: String, error: PlantError) -> Self {
        match error {
            PlantError::Simulated(SimError::Stopped) => RunError::Cancelled,
            PlantError::Simulated(source) => RunError::Sim { run, source },
            PlantError::Measured(RealError::Cancelled) => RunError::Cancelled,
            PlantError::Measured(source) => RunError::Real { run, source },
        }
    }

    /// Whether something was asked for that can't be done, so that asking for something else helps; if not, something
    /// failed on the way.
    pub fn is_input(&self) -> bool {
        match self {
            RunError::Cancelled | RunError::Threads(_) | RunError::Violation { .. } => false,
            RunError::Real { source, .. } => source.is_input(),
            // A simulation knows no failure but an impossible configuration.
            _ => true,
        }
    }
}
