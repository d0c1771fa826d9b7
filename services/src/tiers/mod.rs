//! Code that services with leaves share: arguments, and the start of mid-tiers and leaves.
//!
//! - [`shard`]: the part of the data that a leaf has. [`queries`]: requests of clients.
//!   [`requirements`]: leaves that a mid-tier may ask.
//! - [`file`](mod@file): files that users name.
//!
//! Does not contain any service's computation.

pub mod file;
pub mod queries;
pub mod requirements;
pub mod shard;

use self::requirements::LeafRequirements;
use self::shard::Shard;
use crate::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use crate::backend::Backend;
use crate::definition::PrepareError;
use crate::tier::timeout;
pub use crate::tier::{CURVES, LEAVES, THREADING, TIMEOUT};
use leeward_core::registry::Algorithm;
use leeward_core::units::Nanos;
use leeward_rpc::server::{Builder, Handler, Server, ServerError};
use leeward_rpc::statistics::ServiceInfo;
use leeward_rpc::tier::{Leaves, MidTier, Options, Tier, TierError};
use leeward_threading::ThreadingSetup;
use std::sync::{Arc, Mutex, PoisonError};

/// Arguments of every mid-tier.
pub const MID_TIER_ARGUMENTS: [Argument; 5] = [LEAVES, THREADING, TIMEOUT, LEAF_ADMISSION, BEGIN];

/// Argument with the data that a service holds, or with which a mid-tier routes requests.
pub const DATA: Argument = Argument {
    name: "data",
    value_name: "DATA",
    help: "Data of a tier and its leaves: synthetic with the service's sizes and a seed; the same for all of them",
    kind: Kind::Text,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

/// Argument with the number of leaves that have the same part of the data.
pub const REPLICAS: Argument = Argument {
    name: "replicas",
    value_name: "N",
    help: "Number of leaves with the same part of the data: first a leaf for each part, then the same parts again",
    kind: Kind::Checked(|text| replicas(text).map(|_| ())),
    default: Some("1"),
    unsupported: UnsupportedPolicy::Refused,
};

fn replicas(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=255).contains(count));
    count.ok_or_else(|| "accepted: a whole number from 1 to 255".into())
}

/// Argument with the part of the data that a leaf has.
pub const SHARD: Argument = Argument {
    name: "shard",
    value_name: "K/N",
    help: "Part of the data that a leaf has: the K-th of N",
    kind: Kind::Checked(|text| shard::Shard::parse(text).map(|_| ())),
    default: Some("1/1"),
    unsupported: UnsupportedPolicy::Refused,
};

/// Argument with the leaves' controller: a tier's connections use its credit protocol.
pub const LEAF_ADMISSION: Argument = Argument {
    name: "leaf-admission",
    value_name: "CONTROLLER",
    help: "Controller that the leaves run, such as breakwater: then requests wait here for the leaves' credits",
    kind: Kind::Checked(|text| controller(text).map(|_| ())),
    default: Some("none"),
    unsupported: UnsupportedPolicy::Refused,
};

/// Argument that selects the start of requests, for leaves that hand out credits.
pub const BEGIN: Argument = Argument {
    name: "begin",
    value_name: "admitted|reserved",
    help: "With --leaf-admission: a request begins when the tier admits it, or when each leaf that it needs permits a call",
    kind: Kind::Checked(|text| reserves(text).map(|_| ())),
    default: Some("admitted"),
    unsupported: UnsupportedPolicy::Refused,
};

fn reserves(text: &str) -> Result<bool, String> {
    match text {
        "reserved" => Ok(true),
        "admitted" => Ok(false),
        _ => Err("accepted: `reserved` or `admitted`".into()),
    }
}

/// Reports an argument that can't be used, with its flag.
fn argument_error(argument: &Argument, error: impl std::fmt::Display) -> PrepareError {
    PrepareError::input(format!("--{}: {error}", argument.name))
}

/// Returns the name of the service of a mid-tier's leaves.
pub fn leaf_service(service: &str) -> String {
    format!("{service}-leaf")
}

/// Assumed round trip to a leaf.
const ROUND_TRIP: Nanos = Nanos::from_micros(50);

fn controller(name: &str) -> Result<Algorithm, String> {
    leeward_controllers::builtin().find(name).cloned().map_err(|error| error.to_string())
}

/// Leaves of a mid-tier, and its threading setup.
#[derive(Clone, Debug)]
pub struct MidTierConfig {
    /// The mid-tier's leaves.
    pub leaves: Leaves,
    /// The mid-tier's threading setup.
    pub threading: ThreadingSetup,
    /// Number of parts of the data; without replicas, the number of leaves.
    pub shards: u32,
    /// The mid-tier's service; its leaves serve `…-leaf`.
    pub service: &'static str,
    /// Parts of data that the leaves have.
    pub sharding: LeafSharding,
}

/// Data of the leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LeafSharding {
    /// No parts, or data unknown to the mid-tier.
    #[default]
    Unsharded,
    /// Each leaf has one part of the same data, in the leaves' order.
    SameData,
    /// Each leaf has one part of these named data, in the leaves' order.
    NamedData(String),
}

impl MidTierConfig {
    /// Parses the arguments of `service`.
    ///
    /// # Errors
    /// No leaves are given, or an argument can't be used.
    pub fn from_values(values: &Values, service: &'static str) -> Result<Self, PrepareError> {
        let text = |argument: &Argument| values.text(argument.name).or(argument.default).unwrap_or_default();
        let addresses = values.text(LEAVES.name).filter(|text| !text.is_empty()).ok_or_else(|| {
            let accepted = "accepted: addresses such as 127.0.0.1:5301,127.0.0.1:5302";
            PrepareError::input(format!("--service {service} needs --leaves; {accepted}"))
        })?;
        let timeout = timeout(text(&TIMEOUT)).map_err(|error| argument_error(&TIMEOUT, error))?;
        let leaves = Leaves::resolve(addresses.split(',').map(str::trim)).map_err(PrepareError::input)?;
        let threading = text(&THREADING).parse().map_err(|error| argument_error(&THREADING, error))?;
        let copies = replicas(text(&REPLICAS)).map_err(|error| argument_error(&REPLICAS, error))?;
        let leaves = leaves.copies(copies).map_err(PrepareError::input)?;
        // Leaves have 16-bit numbers.
        let count = leaves.parts() as u32;
        let controller = controller(text(&LEAF_ADMISSION)).map_err(|error| argument_error(&LEAF_ADMISSION, error))?;
        let params = controller.params(&[]).map_err(|error| argument_error(&LEAF_ADMISSION, error))?;
        // No request waits for a leaf's answer after the timeout.
        let leaves = match timeout {
            Some(timeout) => leaves.timeout(timeout),
            None => leaves.timeout_by_objective(),
        };
        let leaves = leaves.admission(&controller, params, ROUND_TRIP, timeout);
        let leaves = leaves.reserve_credits(reserves(text(&BEGIN)).map_err(|error| argument_error(&BEGIN, error))?);
        Ok(MidTierConfig { leaves, threading, shards: count, service, sharding: LeafSharding::Unsharded })
    }

    /// Sets the leaves' parts of data.
    #[must_use]
    pub fn with_sharding(self, parts: LeafSharding) -> Self {
        MidTierConfig { sharding: parts, ..self }
    }

    /// Builds the requirements on leaves under a mid-tier with this controller.
    fn requirements(&self, controller: &'static str) -> LeafRequirements {
        let mut requirements = LeafRequirements::new(&self.leaves, leaf_service(self.service), controller);
        if self.sharding != LeafSharding::Unsharded {
            requirements.shards = Some(self.shards);
        }
        if let LeafSharding::NamedData(data) = &self.sharding {
            requirements.data = Some(data.clone());
        }
        requirements
    }
}

/// A mid-tier that can be started.
#[derive(Debug)]
pub struct MidTierBackend<M> {
    /// Leaves and threading setup.
    pub config: MidTierConfig,
    /// The mid-tier's computation.
    pub service: M,
    /// Leaves of each started server; they hold reports about themselves.
    started: Mutex<Vec<Leaves>>,
}

impl<M> MidTierBackend<M> {
    /// Creates a mid-tier with this configuration.
    pub fn new(way: MidTierConfig, service: M) -> Self {
        MidTierBackend { config: way, service, started: Mutex::default() }
    }
}

impl<M: MidTier + Clone> Backend for MidTierBackend<M> {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let requirements = self.config.requirements(builder.config().algorithm.name);
        let leaves = self.config.leaves.clone().validator(Arc::new(requirements));
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(leaves.clone());
        let options = Options::new(leaves, self.config.threading);
        let builder =
            builder.service_info(ServiceInfo { service: Some(self.config.service.into()), ..ServiceInfo::default() });
        let started = builder.start_tier(address, options, self.service.clone());
        started.map(Tier::into_server).map_err(|error| match error {
            TierError::Server(error) => error,
            other => ServerError::Other(other.to_string()),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().flat_map(Leaves::take_reports).collect()
    }
}

/// A leaf that can be started.
#[derive(Debug)]
pub struct LeafBackend<H> {
    /// The leaf's computation.
    pub handler: H,
    /// Description of the served data.
    pub about: ServiceInfo,
}

impl<H> LeafBackend<H> {
    /// Creates a leaf of `service` without a part of its own.
    pub fn new(service: &str, handler: H) -> Self {
        LeafBackend { handler, about: ServiceInfo { service: Some(service.into()), ..ServiceInfo::default() } }
    }

    /// Sets the leaf's part of `data`.
    #[must_use]
    pub fn with_shard(mut self, part: Shard, data: &impl ToString) -> Self {
        (self.about.part, self.about.data) = (Some((part.index + 1, part.count)), Some(data.to_string()));
        self
    }
}

impl<H: Handler + Clone> Backend for LeafBackend<H> {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.service_info(self.about.clone()).start(address, self.handler.clone())
    }
}
