//! The key-value service in the catalogue: arguments, backend and client requests.
//!
//! - [`mix`]: the pairs and their popularity, after published workloads.
//! - `generator`: requests as the load generator sends them, and the initial fill of a store.
//! - `memcached`: the second port.

mod generator;
mod memcached;
pub mod mix;

pub use generator::store_all;
pub use mix::{PairMix, PairWorkload, Pairs};

use crate::service::Kv;
use crate::store::{Store, StoreConfig};
use generator::{KvGenerator, fill, fill_server};
use leeward_core::units::UnitError;
use leeward_engine::Config;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Values, size};
use leeward_services::backend::{Backend, Bottleneck, InProcessService, Port};
use leeward_services::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The key-value service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct KvDefinition;

/// Argument with the memory for pairs.
pub const MEMORY: Argument = Argument {
    name: "memory",
    value_name: "SIZE",
    help: "With `--service kv` or `router-leaf`: memory for the pairs, such as 64MB",
    kind: Kind::Checked(|text| memory(text).map(drop)),
    default: Some("64MB"),
    unsupported: UnsupportedPolicy::Ignored,
};

const MEMCACHED: Argument = Argument {
    name: "memcached",
    value_name: "ADDRESS",
    help: "With `--service kv`: also serve the pairs to memcached clients at this address, on as many cores again",
    kind: Kind::Text,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

impl ServiceDefinition for KvDefinition {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn summary(&self) -> &'static str {
        "Stores pairs of keys and values"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[MEMORY, MEMCACHED]
    }

    fn open(&self, values: &Values, cores: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let port = values.text(MEMCACHED.name).map(String::from);
        let config = StoreConfig {
            memory: memory(values.text(MEMORY.name).unwrap_or_default())
                .map_err(|problem| PrepareError::input(format!("--memory {problem}")))?,
            threads: (1 + usize::from(port.is_some())) * cores,
            // A random seed hides from clients which keys collide.
            seed: RandomState::new().hash_one(()),
            ..StoreConfig::default()
        };
        let store = Store::new(&config).map_err(|error| PrepareError::input(format!("--memory: {error}")))?;
        Ok(Box::new(SharedStoreBackend { store: Arc::new(store), port }))
    }

    fn ports(&self, values: &Values) -> usize {
        1 + usize::from(values.get(MEMCACHED.name).is_some())
    }

    fn requests_help(&self) -> &'static str {
        "pairs, such as kv:usr or kv:etc:keys=24"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        PairWorkload::parse(text).map(|workload| Arc::new(workload) as Arc<dyn Requests>)
    }
}

/// One store for all servers, empty at first.
struct SharedStoreBackend {
    store: Arc<Store>,
    /// Address of the port for memcached's clients.
    port: Option<String>,
}

impl Backend for SharedStoreBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, Kv::new(Arc::clone(&self.store)))
    }

    fn second_port(&self) -> Option<&'static str> {
        self.port.as_ref().map(|_| memcached::NAME)
    }

    fn open_port(&self, config: &Config) -> Result<Option<Box<dyn Port>>, ServerError> {
        self.port.as_deref().map(|address| memcached::open(address, &self.store, config)).transpose()
    }
}

impl Requests for PairWorkload {
    fn is_cpu_bound(&self) -> bool {
        true
    }

    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        let generator = KvGenerator::new(*self);
        fill_server(server, generator.pairs())?;
        Ok(Some(Arc::new(generator)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        let generator = Arc::new(KvGenerator::new(*self));
        let backend = Arc::new(FilledStoreBackend(Arc::clone(&generator)));
        Ok(InProcessService { backend, generator: Some(generator), description: None, bottleneck: Bottleneck::Locks })
    }
}

/// One store per server, filled with all pairs: a run never sees another run's changes.
struct FilledStoreBackend(Arc<KvGenerator>);

impl Backend for FilledStoreBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        // Enough memory for everything that a mix may store.
        let config = StoreConfig { memory: 1 << 30, hash_power: 17, threads: 2, ..StoreConfig::default() };
        let store = Arc::new(Store::new(&config).map_err(std::io::Error::other)?);
        fill(&store, self.0.pairs()).map_err(std::io::Error::other)?;
        builder.start(address, Kv::new(store))
    }
}

/// Parses and checks the store's size.
///
/// # Errors
/// A message with the accepted sizes.
pub fn memory(text: &str) -> Result<usize, String> {
    let memory = size(text)?;
    let config = StoreConfig { memory, ..StoreConfig::default() };
    config.check().map_err(|error| format!("`{text}`: {error}"))?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_are_parsed_within_bounds() {
        assert_eq!(memory("64MB").unwrap(), 64 << 20);
        assert_eq!(memory("2GB").unwrap(), 2 << 30);
        for wrong in ["64", "MB", "1KB", "-1MB", "1TB", "9999999999GB"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
