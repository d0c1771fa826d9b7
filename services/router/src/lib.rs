//! Router: a mid-tier that routes `get` and `set` to key-value leaves by a hash of the key, each
//! key on several replicas (µSuite's Router; µTune §5).
//!
//! For studies of tiers: `leeward serve --service router`. Entry points: [`Router`] and
//! [`RouterLeaf`].
//!
//! - [`wire`]: arguments and results as bytes. [`spooky`]: the hash.
//! - [`RouterLeaf`]: a leaf, on the key-value service's store. [`StoreLeaf`]: a leaf in front of a
//!   memcached server. [`Router`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_router::spooky::hash32;
//!
//! // Which of three leaves has the key.
//! let leaf = |key: &str| hash32(key.as_bytes(), 0) % 3;
//! assert_eq!(leaf("user:7"), leaf("user:7"));
//! assert!((0..100).map(|user| leaf(&format!("user:{user}"))).any(|leaf| leaf == 2));
//! ```
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
