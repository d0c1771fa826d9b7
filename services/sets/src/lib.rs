//! Set Algebra: finds the documents that contain all of some words, by intersecting lists of
//! documents (µSuite's Set Algebra; µTune §5).
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: documents.
//! - [`postings`]: a share of the documents, by word. [`intersect`]: intersection of lists.
//! - [`stop`]: words that occur in too many documents.
//! - [`SetsLeaf`]: a leaf. [`Sets`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! Does not contain admission, sockets or threads.

#![forbid(unsafe_code)]

pub mod data;
pub mod definition;
pub mod intersect;
mod leaf;
pub mod postings;
pub mod stop;
mod tier;
pub mod wire;

pub use leaf::SetsLeaf;
pub use tier::Sets;
