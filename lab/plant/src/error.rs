//! Errors of real runs and measurements.

use leeward_core::params::ParamError;
use leeward_load::LoadError;
use leeward_load::schedule::ScheduleError;
use leeward_rpc::server::ServerError;

/// Reason for which a real run or measurement has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RealError {
    /// This machine can't serve such a tier; the text has the reason.
    #[error("tier: {0}")]
    Tier(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The server could not be started.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A core of the server has ended early.
    #[error("the server has failed: {0}")]
    Core(#[source] std::io::Error),
    /// The load could not be generated.
    #[error(transparent)]
    Load(LoadError),
    /// The demand exceeds the memory.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The controller rejects its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The system does not report the available CPUs.
    #[error("which CPUs may be used: {0}")]
    Cpus(#[source] std::io::Error),
    /// All clients were disconnected.
    #[error("all {0} connections were lost")]
    Disconnected(u32),
    /// Some clients were disconnected, so the others met another workload.
    #[error("{lost} of {opened} connections were lost: {reasons}")]
    ConnectionsLost {
        /// Lost connections.
        lost: u32,
        /// Opened connections.
        opened: u32,
        /// Reasons, as text.
        reasons: String,
    },
    /// The service failed requests; they were neither rejected nor served.
    #[error("the service failed {0} requests: it takes service times of up to {max}", max = leeward_services::synthetic::SERVICE_TIME_MAX)]
    RequestsFailed(u64),
    /// Both ends of all connections need more files than this process may open.
    #[error(
        "{clients} clients need {needed} sockets here, both ends counted, and this process may open {allowed}; raise its limit (`ulimit -n`) or take fewer clients"
    )]
    Sockets {
        /// Clients.
        clients: u32,
        /// Sockets that they need.
        needed: u64,
        /// Sockets that the process may open.
        allowed: u64,
    },
    /// The server was not sampled twice in the measured part, so its activity is unknown.
    #[error("the measured part is too short to see what the server did in it; make the run longer")]
    TooShort,
    /// The service can't be prepared.
    #[error(transparent)]
    Prepare(#[from] leeward_services::definition::PrepareError),
    /// The server answered nothing during the measurement, in several attempts.
    #[error("the server answered nothing while the machine was measured: is other work keeping its CPUs busy?")]
    NoResponses,
}

impl RealError {
    /// Whether the request was invalid; otherwise, something failed on the way.
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
