//! Algorithms by name. `leeward_controllers::builtin` has those of Leeward; another crate adds its
//! own to its own registry.
//!
//! # Adding an algorithm
//! A controller that admits every second request, written outside this crate:
//! ```
//! use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate};
//! use leeward_core::registry::{Algorithm, Environment};
//! use leeward_core::server::{
//!     Admission, Arrival, ControlLoop, RejectReason, ServerHalves, Session, Signals, Verdict,
//! };
//! use leeward_core::units::{Nanos, Time};
//!
//! struct EverySecond { seen: u64 }
//!
//! impl Admission for EverySecond {
//!     fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
//!         self.seen += 1;
//!         let is_second = self.seen % 2 == 0;
//!         if is_second { Verdict::Admit } else { Verdict::Reject(RejectReason::Concurrency) }
//!     }
//! }
//!
//! struct Nothing;
//! impl ControlLoop for Nothing {
//!     fn period(&self) -> Nanos { Nanos::from_millis(1) }
//!     fn tick(&mut self, _: &Signals) {}
//! }
//! impl ClientHalf for Nothing {
//!     fn gate(&mut self, _: Time, _: u32) -> Gate { Gate::Open }
//! }
//!
//! let mut registry = leeward_controllers::builtin();
//! registry.add(Algorithm {
//!     name: "every-second",
//!     summary: "admits every second request",
//!     source: "an example",
//!     params: &[],
//!     build_server: |_, environment| Ok(ServerHalves {
//!         cores: (0..environment.cores)
//!             .map(|_| Box::new(EverySecond { seen: 0 }) as Box<dyn Admission>)
//!             .collect(),
//!         control: Box::new(Nothing),
//!     }),
//!     build_client: |_, _| {
//!         Ok(ClientParts { half: Box::new(Nothing), config: ClientConfig::default() })
//!     },
//! }).unwrap();
//! assert!(registry.find("every-second").is_ok());
//! ```

use crate::client::{Client, ClientParts};
use crate::params::{ParamError, ParamSpec, Params, RawParam};
use crate::server::ServerHalves;
use crate::units::Nanos;

/// Given conditions of a server, which an algorithm needs and can't choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Environment {
    /// Cores the server may use.
    pub cores: u32,
    /// Network round trip between client and server, without queueing.
    pub rtt: Nanos,
    /// Latency objective of a request, from its issue to its response.
    pub slo: Nanos,
    /// Whether the server always has all its cores.
    pub provisioning: CoreProvisioning,
}

/// Whether a server always has all its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreProvisioning {
    /// The number of cores is fixed.
    #[default]
    Fixed,
    /// An allocator grants and parks cores (`leeward-allocation`).
    Allocated,
}

impl Environment {
    /// Creates an environment with fixed cores; `cores` is raised to at least one.
    pub fn new(cores: u32, rtt: Nanos, slo: Nanos) -> Self {
        Environment { cores: cores.max(1), rtt, slo, provisioning: CoreProvisioning::Fixed }
    }

    /// Returns the same environment with an allocator.
    pub fn with_allocator(self) -> Self {
        Environment { provisioning: CoreProvisioning::Allocated, ..self }
    }
}

/// An algorithm: its name, its parameters, and the functions that build its halves.
#[derive(Clone, Debug)]
pub struct Algorithm {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// Summary of the algorithm in one line.
    pub summary: &'static str,
    /// Publication of the algorithm.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Builds the server's side.
    pub build_server: fn(&Params, &Environment) -> Result<ServerHalves, ParamError>,
    /// Builds one client's side.
    pub build_client: fn(&Params, &Environment) -> Result<ClientParts, ParamError>,
}

impl Algorithm {
    /// Reads parameters for this algorithm.
    ///
    /// # Errors
    /// The first parameter that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// Builds the server's side.
    ///
    /// # Errors
    /// Parameters that conflict with each other.
    pub fn server(&self, params: &Params, environment: &Environment) -> Result<ServerHalves, ParamError> {
        (self.build_server)(params, environment)
    }

    /// Builds the client of one session.
    ///
    /// # Errors
    /// Parameters that conflict with each other.
    pub fn client<T>(&self, params: &Params, environment: &Environment) -> Result<Client<T>, ParamError> {
        (self.build_client)(params, environment).map(Client::new)
    }
}

/// A name that the registry does not have, or has already.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No algorithm of that name.
    #[error("unknown controller `{name}`; accepted: {accepted}")]
    Unknown {
        /// The requested name.
        name: String,
        /// All names in the registry.
        accepted: String,
    },
    /// The name is in use.
    #[error("there is a controller `{0}` already")]
    NameInUse(&'static str),
}

/// Algorithms by name.
#[derive(Clone, Debug)]
pub struct Registry {
    algorithms: Vec<Algorithm>,
}

impl Registry {
    /// Creates a registry of these algorithms, whose names must differ.
    pub fn new(algorithms: Vec<Algorithm>) -> Self {
        Registry { algorithms }
    }

    /// Adds an algorithm.
    ///
    /// # Errors
    /// [`RegistryError::NameInUse`] if the name is in use.
    pub fn add(&mut self, algorithm: Algorithm) -> Result<(), RegistryError> {
        if self.algorithms.iter().any(|known| known.name == algorithm.name) {
            return Err(RegistryError::NameInUse(algorithm.name));
        }
        self.algorithms.push(algorithm);
        Ok(())
    }

    /// Replaces the algorithm of the same name, or adds it.
    pub fn replace(&mut self, algorithm: Algorithm) {
        match self.algorithms.iter_mut().find(|known| known.name == algorithm.name) {
            Some(known) => *known = algorithm,
            None => self.algorithms.push(algorithm),
        }
    }

    /// Returns the algorithm called `name`.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`], with all names in the registry.
    pub fn find(&self, name: &str) -> Result<&Algorithm, RegistryError> {
        self.algorithms.iter().find(|known| known.name == name).ok_or_else(|| RegistryError::Unknown {
            name: name.chars().take(40).collect(),
            accepted: self.names().collect::<Vec<_>>().join(", "),
        })
    }

    /// All names, in order of registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name)
    }

    /// All algorithms, in order of registration.
    pub fn algorithms(&self) -> impl Iterator<Item = &Algorithm> {
        self.algorithms.iter()
    }
}
