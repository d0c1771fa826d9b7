//! HDSearch: finds the nearest neighbours of a point (µSuite's HDSearch; µTune §5).
//!
//! For studies of tiers: `leeward serve --service hdsearch`. Entry points: [`HdSearch`] and
//! [`HdSearchLeaf`].
//!
//! The mid-tier selects candidates by locality-sensitive hashing, and the leaves compute their
//! distances.
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: points.
//! - [`hashing`]: hyperplanes and tables. [`distance`]: distances, and the nearest points.
//! - [`HdSearchLeaf`]: a leaf. [`HdSearch`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_hdsearch::distance::{Nearest, Neighbour, squared};
//!
//! let points = [[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]];
//! let mut nearest = Nearest::default();
//! nearest.reset(2);
//! for (id, point) in (0..).zip(&points) {
//!     nearest.offer(Neighbour { id, distance: squared(&[0.0, 0.0], point) });
//! }
//! let ids: Vec<u32> = nearest.sorted().iter().map(|neighbour| neighbour.id).collect();
//! assert_eq!(ids, [0, 2]);
//! ```
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
