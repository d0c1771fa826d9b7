//! Header of a recording: the algorithm with its parameters and environment, sufficient to build
//! the same controller again.

use super::block::{Block, BlockKind};
use super::bytes::{Bytes, DecodeError, put, put_params, put_text};
use super::threading::ThreadingHeader;
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_core::registry::{Algorithm, CoreProvisioning, Environment, Registry, RegistryError};
use leeward_core::units::Nanos;

/// Algorithm, parameters and environment of the recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Version of this crate that made the recording.
    pub version: String,
    /// Kind of plant, in a few words: `server`, `simulator`.
    pub plant: String,
    /// The algorithm's name.
    pub algorithm: String,
    /// The set parameters; all others have their defaults.
    pub params: Vec<(String, RawParam)>,
    /// The environment.
    pub environment: Environment,
    /// The threading policy, if there is one.
    pub threading: Option<ThreadingHeader>,
}

/// Error: this version can't build the recorded controller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The algorithm belongs to another crate or version.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The algorithm does not take these parameters.
    #[error("`{algorithm}` of this version does not take the recorded parameters: {source}")]
    Params {
        /// The algorithm.
        algorithm: String,
        /// The rejected parameter, and the reason.
        source: ParamError,
    },
    /// The threading policy belongs to another version.
    #[error("`{policy}` of this version can't be built as it was recorded: {source}")]
    Threading {
        /// The policy.
        policy: String,
        /// The reason.
        source: ParamError,
    },
}

/// An allocator grants and parks the cores.
const ALLOCATED: u8 = 1;
/// A threading policy decides; its own header follows.
const THREADING: u8 = 2;
/// More cores than any plant has: a wrong number must not allocate memory.
const MAX_CORES: u32 = 4_096;

impl Header {
    /// Creates the header of `algorithm` before it is built.
    pub fn new(plant: &str, algorithm: &Algorithm, params: &Params, environment: &Environment) -> Self {
        Header {
            version: env!("CARGO_PKG_VERSION").into(),
            plant: plant.chars().filter(|c| !c.is_control()).take(40).collect(),
            algorithm: algorithm.name.into(),
            params: params.pairs().map(|(name, raw)| (name.into(), raw)).collect(),
            environment: *environment,
            threading: None,
        }
    }

    /// Adds a threading policy to the header.
    pub fn with_threading(mut self, threading: ThreadingHeader) -> Self {
        self.threading = Some(threading);
        self
    }

    /// Returns the recorded algorithm and its parameters.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn algorithm<'a>(&self, registry: &'a Registry) -> Result<(&'a Algorithm, Params), HeaderError> {
        let algorithm = registry.find(&self.algorithm)?;
        let pairs: Vec<(&str, RawParam)> = self.params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        let params = algorithm
            .params(&pairs)
            .map_err(|source| HeaderError::Params { algorithm: self.algorithm.clone(), source })?;
        Ok((algorithm, params))
    }

    pub(super) fn block(&self) -> Block {
        let mut out = Vec::new();
        for text in [&self.version, &self.plant, &self.algorithm] {
            put_text(&mut out, text);
        }
        put(&mut out, self.environment.cores.into());
        put(&mut out, self.environment.rtt.0);
        put(&mut out, self.environment.slo.0);
        put_params(&self.params, &mut out);
        // Absent for fixed cores, as in recordings from before cores could be allocated.
        let allocated = self.environment.provisioning == CoreProvisioning::Allocated;
        let flags = if allocated { ALLOCATED } else { 0 } | if self.threading.is_some() { THREADING } else { 0 };
        if flags != 0 {
            out.push(flags);
        }
        if let Some(threading) = &self.threading {
            threading.put(&mut out);
        }
        Block { kind: BlockKind::Header, payload: out }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Header, DecodeError> {
        let mut bytes = Bytes::new(payload);
        let (version, plant) = (bytes.text()?, bytes.text()?);
        let algorithm = bytes.text()?;
        let cores = bytes.small()?;
        if cores == 0 || cores > MAX_CORES {
            return Err("an impossible number of cores");
        }
        let environment = Environment::new(cores, Nanos(bytes.number()?), Nanos(bytes.number()?));
        let params = bytes.params()?;
        let flags = if bytes.remaining() == 0 { None } else { Some(bytes.byte()?) };
        let environment = match flags {
            None | Some(THREADING) => environment,
            Some(flags) if flags & ALLOCATED != 0 && flags & !(ALLOCATED | THREADING) == 0 => {
                environment.with_allocator()
            }
            Some(_) => return Err("there is no such provision of cores"),
        };
        let threading =
            if flags.unwrap_or(0) & THREADING != 0 { Some(ThreadingHeader::read(&mut bytes)?) } else { None };
        if bytes.remaining() > 0 {
            return Err("there is more than a header");
        }
        Ok(Header { version, plant, algorithm, params, environment, threading })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_parameter_round_trips() {
        let registry = leeward_controllers::builtin();
        let environment = Environment::new(4, Nanos::from_micros(10), Nanos::from_micros(200));
        let algorithm = registry.find("breakwater").unwrap();
        let pairs = [
            ("target", RawParam::Text("81.5us".into())),
            ("alpha", RawParam::Text("0.1%".into())),
            ("max_window", RawParam::Integer(32)),
            ("aqm", RawParam::Switch(false)),
            ("waking", RawParam::Text("random".into())),
        ];
        let params = algorithm.params(&pairs).unwrap();
        let header = Header::new("a test", algorithm, &params, &environment);
        let read = Header::read(header.block().payload()).unwrap();
        assert_eq!(read, header);
        assert_eq!(read.algorithm(&registry).unwrap().1, params);
        let header = Header::new("a test", algorithm, &params, &environment.with_allocator());
        assert_eq!(Header::read(header.block().payload()).unwrap(), header);
    }

    #[test]
    fn unknown_algorithms_and_parameters_are_reported() {
        let registry = leeward_controllers::builtin();
        let environment = Environment::new(1, Nanos(1), Nanos(1));
        let none = registry.find("none").unwrap();
        let header = Header::new("a test", none, &Params::default(), &environment);
        let other = Header { algorithm: "mine".into(), ..header.clone() };
        assert!(other.algorithm(&registry).unwrap_err().to_string().contains("unknown controller `mine`"));
        let other = Header { params: vec![("gain".into(), RawParam::Integer(1))], ..header };
        assert!(other.algorithm(&registry).unwrap_err().to_string().contains("`gain`"));
    }
}
