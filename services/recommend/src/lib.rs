//! Recommend: predicts a user's rating of an item by collaborative filtering (µSuite's Recommend;
//! µTune §5).
//!
//! For studies of tiers: `leeward serve --service recommend`. Entry points: [`Recommend`] and
//! [`RecommendLeaf`].
//!
//! Each leaf factorises the matrix of its share of the ratings; the mid-tier averages the
//! predictions.
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: ratings.
//! - [`factors`]: the factorisation. [`neighbours`]: similar users and their prediction.
//! - [`RecommendLeaf`]: a leaf. [`Recommend`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_recommend::data::Ratings;
//! use leeward_recommend::neighbours::Model;
//!
//! // 200 ratings of 20 users for 30 items, drawn from a seed.
//! let ratings = Ratings::synthetic(20, 30, 200, 1);
//! let model = Model::learn(&ratings, 1);
//! assert!(model.predict(3, 7).is_some());
//! ```
//!
//! Does not contain admission, sockets or threads.

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
