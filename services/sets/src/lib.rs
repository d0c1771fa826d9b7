//! Set Algebra: a mid-tier and leaves that find the documents which contain all of some words, by intersecting lists of
//! documents (µSuite's Set Algebra; µTune §5).
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: documents.
//! - [`postings`]: a share of the documents, by word. [`intersect`]: what several lists have in common.
//! - [`stop`]: words that are in too many documents to tell them apart.
//! - [`SetsLeaf`]: a leaf. [`Sets`]: the mid-tier.
//! - [`case`]: both in the catalogue: arguments, and what clients ask.
//!
//! Never here: admission, sockets, threads.

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
