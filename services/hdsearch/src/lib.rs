//! HDSearch: finds the nearest neighbours of a point (µSuite's HDSearch; µTune §5).
//!
//! The mid-tier selects candidates by locality-sensitive hashing, and the leaves compute their
//! distances.
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: points.
//! - [`hashing`]: hyperplanes and tables. [`distance`]: distances, and the nearest points.
//! - [`HdSearchLeaf`]: a leaf. [`HdSearch`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! Does not contain admission, sockets or threads.

#![forbid(unsafe_code)]

pub mod data;
pub mod definition;
pub mod distance;
mod file;
pub mod hashing;
mod leaf;
mod tier;
pub mod wire;

pub use leaf::HdSearchLeaf;
pub use tier::HdSearch;
