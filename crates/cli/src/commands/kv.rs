//! Parts of `leeward serve --service kv` that other services don't have: the store, and the port for memcached's
//! clients.

use anyhow::anyhow;
use leeward_control::budget::Budget;
use leeward_kv::server::Server;
use leeward_kv::store::{Store, StoreConfig};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::serve;
use crate::args::{ServeArgs, Service};
use crate::failure::Failure;
use crate::{admission, allocator, args};

/// The store, if pairs are what is served.
pub(super) fn store(args: &ServeArgs) -> Result<Option<Arc<Store>>, Failure> {
    if !matches!(args.service, args::Service::Kv) {
        return match &args.memcached {
            Some(_) => Err(Failure::Input(anyhow!("--memcached needs `--service {}`", Service::Kv))),
            None => Ok(None),
        };
    }
    let ports = 1 + usize::from(args.memcached.is_some());
    let config = StoreConfig {
        memory: memory(&args.memory)?,
        threads: ports * usize::from(args.cores.most),
        // Keys that collide here shall not be known outside.
        seed: RandomState::new().hash_one(()),
        ..StoreConfig::default()
    };
    let store = Store::new(&config).map_err(|error| Failure::Input(anyhow!("--memory: {error}")))?;
    Ok(Some(Arc::new(store)))
}

/// The port for memcached's clients, if there shall be one.
pub(super) fn memcached(store: &Arc<Store>, args: &ServeArgs) -> Result<Option<Server>, Failure> {
    let Some(address) = &args.memcached else { return Ok(None) };
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::span("--slo", &args.admission.slo)?;
    let rtt = admission::span("--rtt", &args.admission.rtt)?;
    let budget = args.budget.as_deref().map(|budget| admission::span("--budget", budget)).transpose()?;
    let builder = Server::builder()
        .budget(budget.map_or(Budget::UNLIMITED, Budget::of))
        .admission(&algorithm, params)
        .objective(rtt, slo)
        .cores(args.cores.most.into())
        .cpus(args.cpus.clone())
        .idle(serve::idle(allocator::idle(args))?)
        .connection_limit(args.connections as usize);
    builder.start(address, store).map(Some).map_err(serve::failure)
}

/// A size such as `64MB`; the units are powers of 1024, as memcached's are.
pub(crate) fn memory(text: &str) -> Result<usize, Failure> {
    let wrong = || Failure::Input(anyhow!("--memory `{text}`; accepted: a size such as `64MB` or `2GB`"));
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: usize = match &text[number.len()..] {
        "KB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let size = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)?;
    let config = StoreConfig { memory: size, ..StoreConfig::default() };
    config.check().map_err(|error| Failure::Input(anyhow!("--memory `{text}`: {error}")))?;
    Ok(size)
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
