//! Recommend: a mid-tier and leaves that predict how a user rates an item, by collaborative filtering over a matrix that
//! each leaf has factorised for its share of the ratings (µSuite's Recommend; µTune §5).
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: ratings.
//! - [`factors`]: the factorisation. [`neighbours`]: users who are alike, and what they predict.
//! - [`RecommendLeaf`]: a leaf. [`Recommend`]: the mid-tier.
//! - [`case`]: both in the catalogue: arguments, and what clients ask.
//!
//! Never here: admission, sockets, threads.

#![forbid(unsafe_code)]

pub mod data;
pub mod definition;
pub mod factors;
mod file;
mod leaf;
pub mod neighbours;
mod tier;
pub mod wire;

pub use leaf::{RecommendLeaf, Work};
pub use tier::Recommend;
