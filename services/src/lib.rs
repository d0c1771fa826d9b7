//! Definition of a service for the rest of Leeward, and small services.
//!
//! The small services measure the server and show how a service is written.
//!
//! - [`definition`]: the trait that each service implements to be in the catalogue.
//! - [`arguments`]: a service's arguments. [`backend`]: the service that is made from them.
//! - [`synthetic`], [`echo`], [`wait`], [`disk`], [`tier`]: services. [`tiers`]: code that services
//!   with leaves share.
//!
//! Does not contain admission, sockets or the list of all services (`leeward-catalogue`).

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
