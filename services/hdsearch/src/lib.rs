//! HDSearch: a mid-tier that finds candidates for the nearest neighbours of a point by locality-sensitive hashing, and leaves
//! that measure how far they are (µSuite's HDSearch; µTune §5).
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: points.
//! - [`hashing`]: hyperplanes and tables. [`distance`]: how far points are, and the nearest of them.
//! - [`HdSearchLeaf`]: a leaf. [`HdSearch`]: the mid-tier.
//! - [`case`]: both in the catalogue: arguments, and what clients ask.
//!
//! Never here: admission, sockets, threads.

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
