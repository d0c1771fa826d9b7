//! Set Algebra: finds the documents that contain all of some words, by intersecting lists of
//! documents (µSuite's Set Algebra; µTune §5).
//!
//! For studies of tiers: `leeward serve --service sets`. Entry points: [`Sets`] and
//! [`SetsLeaf`].
//!
//! - [`wire`]: arguments and results as bytes. [`data`]: documents.
//! - [`postings`]: a share of the documents, by word. [`intersect`]: intersection of lists.
//! - [`stop`]: words that occur in too many documents.
//! - [`SetsLeaf`]: a leaf. [`Sets`]: the mid-tier.
//! - [`definition`]: both in the catalogue: arguments and client requests.
//!
//! # Example
//! ```
//! use leeward_sets::intersect;
//!
//! // Documents that contain each of three words.
//! let mut lists: [&[u32]; 3] = [&[1, 3, 4, 9], &[3, 9, 12], &[2, 3, 9]];
//! let mut documents = Vec::new();
//! intersect::all(&mut lists, &mut documents);
//! assert_eq!(documents, [3, 9]);
//! ```
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
