//! Why there is no measurement.

use leeward_control::params::ParamError;
use leeward_load::LoadError;
use leeward_load::schedule::ScheduleError;
use leeward_rpc::server::ServerError;

/// Why a real run or measurement has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RealError {
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The server could not be started.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A core of the server has ended before its time.
    #[error("the server has failed: {0}")]
    Core(#[source] std::io::Error),
    /// The load could not be generated.
    #[error(transparent)]
    Load(LoadError),
    /// The demand is more than fits into memory.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The controller refuses its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The system does not tell which CPUs there are.
    #[error("which CPUs may be used: {0}")]
    Cpus(#[source] std::io::Error),
    /// The clients were cut off.
    #[error("all {0} connections were lost")]
    Disconnected(u32),
    /// Nothing was answered while the machine was being measured.
    #[error("the server answered nothing while its capacity was measured")]
    Silent,
}

impl From<LoadError> for RealError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Stopped => RealError::Cancelled,
            other => RealError::Load(other),
        }
    }
}
