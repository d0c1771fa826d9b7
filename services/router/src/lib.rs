//! Router: a mid-tier that routes `get` and `set` to key-value leaves by a hash of the key, each
//! key on several replicas (µSuite's Router; µTune §5).
//!
//! - [`wire`]: arguments and results as bytes. [`spooky`]: the hash.
//! - [`RouterLeaf`]: a leaf, on the key-value service's store. [`StoreLeaf`]: a leaf in front of a
//!   memcached server. [`Router`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! Does not contain admission or threads.

#![forbid(unsafe_code)]

pub mod definition;
mod leaf;
pub mod spooky;
mod store;
mod tier;
pub mod wire;

pub use leaf::RouterLeaf;
pub use store::StoreLeaf;
pub use tier::{Acks, Router};
