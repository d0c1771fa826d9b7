//! Why there is no measurement.

use leeward_core::params::ParamError;
use leeward_load::LoadError;
use leeward_load::schedule::ScheduleError;
use leeward_rpc::server::ServerError;

/// Why a real run or measurement has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RealError {
    /// A tier that this machine can't serve, in words.
    #[error("tier: {0}")]
    Tier(String),
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
    /// Some clients were cut off: what the others met is another workload.
    #[error("{lost} of {opened} connections were lost: {reasons}")]
    ConnectionsLost {
        /// How many.
        lost: u32,
        /// Of how many.
        opened: u32,
        /// Why, for people.
        reasons: String,
    },
    /// The service failed requests, which are neither rejected nor served.
    #[error("the service failed {0} requests: it takes service times of up to {max}", max = leeward_services::synthetic::SERVICE_TIME_MAX)]
    RequestsFailed(u64),
    /// Both ends of all connections are more files than this process may open.
    #[error(
        "{clients} clients need {needed} sockets here, both ends counted, and this process may open {allowed}; raise its limit (`ulimit -n`) or take fewer clients"
    )]
    Sockets {
        /// Clients.
        clients: u32,
        /// Sockets for them.
        needed: u64,
        /// Sockets allowed.
        allowed: u64,
    },
    /// The server was not looked at twice in the measured part: what it did in it is not known.
    #[error("the measured part is too short to see what the server did in it; make the run longer")]
    TooShort,
    /// The service can't be prepared.
    #[error(transparent)]
    Prepare(#[from] leeward_services::definition::PrepareError),
    /// Nothing was answered while the machine was being measured, time and again.
    #[error("the server answered nothing while the machine was measured: is other work keeping its CPUs busy?")]
    NoResponses,
}

impl RealError {
    /// Whether something was asked for that can't be done, rather than something failed on the way.
    pub fn is_input(&self) -> bool {
        use RealError::{Params, Prepare, RequestsFailed, Schedule, Sockets, Tier, TooShort};
        matches!(self, RequestsFailed(_) | Params(_) | Schedule(_) | Sockets { .. } | Tier(_) | TooShort | Prepare(_))
    }
}

impl From<LoadError> for RealError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Stopped => RealError::Cancelled,
            other => RealError::Load(other),
        }
    }
}
