//! A key-value service for memcached's clients, on Leeward's runtime. `docs/kv.md` is the user's
//! guide.
//!
//! For users of memcached, and for studies of locks. Entry points: [`store::Store`], [`server`]
//! and [`service`].
//!
//! - [`store`]: pairs in slab memory, under striped item locks, a global allocator lock and one LRU
//!   lock per slab class.
//! - [`protocol`]: memcached's text and meta protocol: bytes to requests, requests to replies,
//!   without sockets.
//! - [`server`]: the memcached port: connections on the runtime's cores, with an admission
//!   controller.
//! - [`service`]: the same store under Leeward's own protocol, with credits.
//! - [`definition`]: the service in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_kv::store::{RequestContext, Store, StoreConfig, Write, WriteOutcome};
//!
//! let store = Store::new(&StoreConfig::default())?;
//! let now = RequestContext::at(1_700_000_000);
//! let written = store.write(b"key", b"value", &Write::default(), &now).unwrap();
//! assert!(matches!(written, WriteOutcome::Stored { .. }));
//! let length = store.read(b"key", &now, |item| item.map(|item| item.value_len())).unwrap();
//! assert_eq!(length, Some(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain admission decisions (`leeward-core`) or the loop of cores (`leeward-runtime`).

#![forbid(unsafe_code)]

pub mod definition;
mod number;
pub mod protocol;
pub mod server;
pub mod service;
pub mod store;
