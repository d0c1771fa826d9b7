//! The key-value service in the catalogue: its arguments, how it is served, and what clients ask of it.
//!
//! - [`mix`]: which pairs there are and which are asked for, after published workloads.
//! - `asks`: requests as the load generator sends them, and the pairs that a store is filled with.
//! - `memcached`: the second port.

mod asks;
mod memcached;
pub mod mix;

pub use asks::store_all;
pub use mix::{PairMix, PairService, Pairs};

use crate::service::Kv;
use crate::store::{Store, StoreConfig};
use asks::{Asks, fill, fill_server};
use leeward_core::units::UnitError;
use leeward_engine::Config;
use leeward_rpc::ask::Ask;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_services::arguments::{Argument, Elsewhere, Kind, Values, size};
use leeward_services::case::{Case, CaseError, Progress, Requests, Target};
use leeward_services::served::{Backend, Bottleneck, Port, Served};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The key-value service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct KvCase;

/// Memory for the pairs.
pub const MEMORY: Argument = Argument {
    name: "memory",
    value_name: "SIZE",
    help: "With `--service kv` or `router-leaf`: memory for the pairs, such as 64MB",
    kind: Kind::Checked(|text| memory(text).map(drop)),
    default: Some("64MB"),
    elsewhere: Elsewhere::Ignored,
};

const MEMCACHED: Argument = Argument {
    name: "memcached",
    value_name: "ADDRESS",
    help: "With `--service kv`: serve the same pairs to memcached's clients at this address, on as many cores again",
    kind: Kind::Text,
    default: None,
    elsewhere: Elsewhere::Refused,
};

impl Case for KvCase {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn summary(&self) -> &'static str {
        "Keeps pairs of keys and values"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[MEMORY, MEMCACHED]
    }

    fn open(&self, values: &Values, cores: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        let port = values.text(MEMCACHED.name).map(String::from);
        let config = StoreConfig {
            memory: memory(values.text(MEMORY.name).unwrap_or_default())
                .map_err(|problem| CaseError::input(format!("--memory {problem}")))?,
            threads: (1 + usize::from(port.is_some())) * cores,
            // Keys that collide here shall not be known outside.
            seed: RandomState::new().hash_one(()),
            ..StoreConfig::default()
        };
        let store = Store::new(&config).map_err(|error| CaseError::input(format!("--memory: {error}")))?;
        Ok(Box::new(OneStore { store: Arc::new(store), port }))
    }

    fn ports(&self, values: &Values) -> usize {
        1 + usize::from(values.get(MEMCACHED.name).is_some())
    }

    fn requests_help(&self) -> &'static str {
        "pairs, such as kv:usr or kv:etc:keys=24"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        PairService::parse(text).map(|service| Arc::new(service) as Arc<dyn Requests>)
    }
}

/// A store for all servers, empty in the beginning.
struct OneStore {
    store: Arc<Store>,
    /// Address of the port for memcached's clients.
    port: Option<String>,
}

impl Backend for OneStore {
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

impl Requests for PairService {
    fn is_cpu_bound(&self) -> bool {
        true
    }

    fn prepare(&self, server: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        let asks = Asks::new(*self);
        fill_server(server, asks.pairs())?;
        Ok(Some(Arc::new(asks)))
    }

    fn both_ends(&self, _: &Progress<'_>) -> Result<Served, CaseError> {
        let asks = Arc::new(Asks::new(*self));
        let backend = Arc::new(FullStores(Arc::clone(&asks)));
        Ok(Served { backend, ask: Some(asks), words: None, bottleneck: Bottleneck::Locks })
    }
}

/// A store for each server, filled with all pairs: no run finds what another has left.
struct FullStores(Arc<Asks>);

impl Backend for FullStores {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        // There is room for all that a mix may store.
        let config = StoreConfig { memory: 1 << 30, hash_power: 17, threads: 2, ..StoreConfig::default() };
        let store = Arc::new(Store::new(&config).map_err(std::io::Error::other)?);
        fill(&store, self.0.pairs()).map_err(std::io::Error::other)?;
        builder.start(address, Kv::new(store))
    }
}

/// Reads the store's size.
///
/// # Errors
/// Says what is accepted.
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
    fn memory_is_a_size_within_reason() {
        assert_eq!(memory("64MB").unwrap(), 64 << 20);
        assert_eq!(memory("2GB").unwrap(), 2 << 30);
        for wrong in ["64", "MB", "1KB", "-1MB", "1TB", "9999999999GB"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
