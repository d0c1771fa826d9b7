//! A key-value service that memcached's clients can use, on Leeward's runtime. `docs/kv.md` is the user's guide.
//!
//! - [`store`]: pairs in slab memory, under striped item locks, a global allocator lock and one LRU lock per slab class.
//! - [`protocol`]: memcached's text and meta protocol: bytes to requests, requests to replies, without sockets.
//! - [`server`]: the memcached port: connections on the runtime's cores, with an admission controller.
//! - [`service`]: the same store behind Leeward's own protocol, with credits.
//! - [`case`]: the service in the catalogue: arguments, and what clients ask.
//!
//! Never here: whether a request is admitted (`leeward-core`), and how cores run (`leeward-runtime`).

#![forbid(unsafe_code)]

pub mod definition;
mod number;
pub mod protocol;
pub mod server;
pub mod service;
pub mod store;
