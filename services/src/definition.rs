//! A service as the catalogue knows it: its name, its arguments, how it is served and what clients ask of it. Each service
//! implements [`Case`] in its own folder; `leeward-catalogue` lists them all.

use crate::arguments::{Argument, Values};
use crate::backend::{Backend, InProcessService};
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, UnitError};
use leeward_rpc::client::{Client, Encryption};
use leeward_rpc::generator::RequestGenerator;
use leeward_workload::ServiceTime;
use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::sync::Arc;

/// A service of the catalogue.
pub trait ServiceDefinition: Debug + Send + Sync {
    /// Name on the command line, and the beginning of a text that [`Case::requests`] reads.
    fn name(&self) -> &'static str;

    /// Other names that are taken for it, such as a paper's.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Summary of the service in one line, without a full stop.
    fn summary(&self) -> &'static str;

    /// Arguments of `leeward serve` that are this service's.
    fn arguments(&self) -> &'static [Argument] {
        &[]
    }

    /// Text of `--data` for data that are ready in a moment, for showing the service; `None` if it takes none.
    fn small_data(&self) -> Option<&'static str> {
        None
    }

    /// How many ports it opens; each has cores of its own.
    fn ports(&self, _: &Values) -> usize {
        1
    }

    /// Prepares the data for a server on `cores` cores.
    ///
    /// # Errors
    /// An argument, or a file that it names, can't be used.
    fn open(&self, values: &Values, cores: usize, progress: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError>;

    /// Help on the texts that [`Case::requests`] reads, in one line, for `leeward load --service`.
    fn requests_help(&self) -> &'static str;

    /// Reads what clients ask, as `leeward load --service` and a scenario's `workload.service` write it.
    ///
    /// # Errors
    /// Another text; says what is accepted.
    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError>;
}

/// Requests of clients to a service. `Display` writes the text that [`Case::requests`] reads.
pub trait Requests: Debug + Display + Send + Sync {
    /// The service times that requests carry; `None` if the service takes as long as it takes, which is measured.
    fn service_times(&self) -> Option<&ServiceTime> {
        None
    }

    /// Whether a request needs CPU time only: a core waits for no disk, no lock and no other server. Then
    /// the throughput of the cores' busy time is the server's capacity.
    fn is_cpu_bound(&self) -> bool {
        self.service_times().is_some()
    }

    /// A reason to doubt what is going to be measured, such as too small a data set.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Prepares a running server for the load, and says what to ask of it; `None`: service times.
    ///
    /// # Errors
    /// The server does not answer, or serves something else.
    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError>;

    /// Prepares both ends in this process.
    ///
    /// # Errors
    /// The data can't be prepared.
    fn prepare_in_process(&self, progress: &Progress<'_>) -> Result<InProcessService, PrepareError>;
}

/// Hears how the preparation goes on.
pub type Progress<'a> = dyn Fn(Notice<'_>) + 'a;

/// A word about the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A step begins that may take a while.
    Step(&'a str),
    /// Something to know of the data.
    Note(&'a str),
}

/// A running server, and the controller that it and its clients run.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The server.
    pub address: SocketAddr,
    /// The controller.
    pub algorithm: &'a Algorithm,
    /// Its parameters.
    pub params: &'a Params,
    /// The network's round trip.
    pub rtt: Nanos,
    /// The objective.
    pub slo: Nanos,
    /// Encryption to reach it with; `None` for none.
    pub encryption: Option<&'a Encryption>,
}

impl Target<'_> {
    /// A client of it, to prepare it with.
    ///
    /// # Errors
    /// There is no such controller, or no thread for a client; in words.
    pub fn client(&self) -> Result<Client, String> {
        let client = Client::builder()
            .replica(self.address.to_string())
            .admission(self.algorithm, self.params.clone())
            .objective(self.rtt, self.slo);
        let client = client.encryption(self.encryption.cloned().unwrap_or_default());
        client.build().map_err(|error| error.to_string())
    }
}

/// Why a service can't be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// An argument, or a file that it names, can't be used.
    #[error(transparent)]
    Input(Box<dyn std::error::Error + Send + Sync>),
    /// A running server can't be prepared for the load.
    #[error("{step} {address}: {reason}; is it `leeward serve --service {service}`?")]
    Server {
        /// Step that was tried, such as `filling`.
        step: &'static str,
        /// The server.
        address: SocketAddr,
        /// Why it did not succeed.
        reason: String,
        /// The service that was expected there.
        service: &'static str,
    },
}

impl PrepareError {
    /// An argument, or a file that it names, can't be used.
    pub fn input(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        PrepareError::Input(error.into())
    }
}
