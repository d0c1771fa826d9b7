//! A service's entry in the catalogue: name, arguments, backend and client requests.
//!
//! Each service implements [`ServiceDefinition`] in its own folder; `leeward-catalogue` lists all
//! of them.

use crate::arguments::{Argument, Values};
use crate::backend::{Backend, InProcessService};
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, UnitError};
use leeward_rpc::client::{Client, Encryption, Response};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use leeward_workload::ServiceTime;
use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A service of the catalogue.
pub trait ServiceDefinition: Debug + Send + Sync {
    /// Name on the command line, and prefix of the text that [`ServiceDefinition::requests`]
    /// parses.
    fn name(&self) -> &'static str;

    /// Other accepted names, such as a paper's.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// One-line summary, without a full stop.
    fn summary(&self) -> &'static str;

    /// Arguments of `leeward serve` that belong to this service.
    fn arguments(&self) -> &'static [Argument] {
        &[]
    }

    /// Value of `--data` for small data that load in a moment, for demonstrations.
    ///
    /// `None` for a service without data.
    fn small_data(&self) -> Option<&'static str> {
        None
    }

    /// Number of ports that the service opens; each port has separate cores.
    fn ports(&self, _: &Values) -> usize {
        1
    }

    /// Prepares the data for a server on `cores` cores.
    ///
    /// # Errors
    /// An argument, or a file that it names, can't be used.
    fn open(&self, values: &Values, cores: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError>;

    /// One line of help for `leeward load --service`, about the texts of
    /// [`ServiceDefinition::requests`].
    fn requests_help(&self) -> &'static str;

    /// Parses the client requests of `leeward load --service` and of a scenario's
    /// `workload.service`.
    ///
    /// # Errors
    /// Any other text; the message lists the accepted forms.
    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError>;
}

/// Client requests to a service. `Display` writes text that [`ServiceDefinition::requests`] parses.
pub trait Requests: Debug + Display + Send + Sync {
    /// Service times that requests carry; `None` for a service whose time is measured.
    fn service_times(&self) -> Option<&ServiceTime> {
        None
    }

    /// Returns whether a request needs only CPU time: no disk, no lock and no other server.
    ///
    /// Then the throughput of the cores' busy time is the server's capacity.
    fn is_cpu_bound(&self) -> bool {
        self.service_times().is_some()
    }

    /// Returns a reason to doubt the measurement, such as too small a data set.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Prepares a running server for the load and returns the request generator.
    ///
    /// `None` means that requests carry service times.
    ///
    /// # Errors
    /// The server does not answer, or serves something else.
    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError>;

    /// Prepares server and clients in this process.
    ///
    /// # Errors
    /// The data can't be prepared.
    fn prepare_in_process(&self, progress: &Progress<'_>) -> Result<InProcessService, PrepareError>;
}

/// Callback for notices about the preparation.
pub type Progress<'a> = dyn Fn(Notice<'_>) + 'a;

/// A notice about the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// Start of a step that may take a while.
    Step(&'a str),
    /// A remark about the data.
    Note(&'a str),
}

/// A running server, and the controller that it and its clients use.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The server's address.
    pub address: SocketAddr,
    /// The controller.
    pub algorithm: &'a Algorithm,
    /// The controller's parameters.
    pub params: &'a Params,
    /// The network's round trip.
    pub rtt: Nanos,
    /// The latency objective.
    pub slo: Nanos,
    /// Encryption of the connection; `None` for plain text.
    pub encryption: Option<&'a Encryption>,
}

impl Target<'_> {
    /// Builds a client with which the server can be prepared.
    ///
    /// # Errors
    /// The controller does not exist, or the client's thread can't be started. The error is a
    /// message.
    pub fn client(&self) -> Result<Client, String> {
        let client = Client::builder()
            .replica(self.address.to_string())
            .admission(self.algorithm, self.params.clone())
            .objective(self.rtt, self.slo);
        let client = client.encryption(self.encryption.cloned().unwrap_or_default());
        client.build().map_err(|error| error.to_string())
    }
}

/// Pause after the first rejection of a call that prepares a server; it doubles up to
/// `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Attempts of such a call: some ten seconds.
const ATTEMPTS: u32 = 500;

/// Calls a procedure that prepares a server, and repeats the call while the server or the client
/// rejects it for overload. It must do no harm to execute it twice.
///
/// # Errors
/// The call fails otherwise, or is rejected for some ten seconds. The error is a message.
pub fn call_patiently(client: &Client, method: Method, payload: &[u8]) -> Result<Response, String> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match client.call_blocking(method, payload) {
            Err(error) if error.is_overload() => std::thread::sleep(pause),
            ended => return ended.map_err(|error| error.to_string()),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    let last = client.call_blocking(method, payload);
    last.map_err(|error| format!("{error}, {ATTEMPTS} times"))
}

/// Reason why a service can't be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// An argument, or a file that it names, can't be used.
    #[error(transparent)]
    Input(Box<dyn std::error::Error + Send + Sync>),
    /// A running server can't be prepared for the load.
    #[error("{step} {address}: {reason}")]
    Server {
        /// The step that failed, such as `filling`.
        step: &'static str,
        /// The server.
        address: SocketAddr,
        /// Reason of the failure.
        reason: String,
    },
}

impl PrepareError {
    /// An argument, or a file that it names, can't be used.
    pub fn input(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        PrepareError::Input(error.into())
    }
}
