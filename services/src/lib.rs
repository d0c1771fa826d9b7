//! Definition of a service for the rest of Leeward, and small services: to measure the server, and to show how one
//! is written.
//!
//! - [`case`]: the trait that each service implements to be in the catalogue.
//! - [`arguments`]: the arguments that it takes. [`served`]: what it makes of them.
//! - [`synthetic`], [`echo`], [`wait`], [`disk`], [`tier`]: services. [`tiers`]: what those share that have leaves.
//!
//! Never here: admission, sockets, the list of all services (`leeward-catalogue`).

#![forbid(unsafe_code)]

pub mod arguments;
pub mod backend;
pub mod definition;
pub mod disk;
pub mod echo;
pub mod synthetic;
pub mod tier;
pub mod tiers;
pub mod wait;
