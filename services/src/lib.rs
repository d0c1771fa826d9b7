//! Definition of a service for the rest of Leeward, and small services.
//!
//! For authors of services. Entry points: [`definition::ServiceDefinition`] and
//! [`definition::Requests`].
//!
//! The small services measure the server and show how a service is written.
//!
//! - [`definition`]: the trait that each service implements to be in the catalogue.
//! - [`arguments`]: a service's arguments. [`backend`]: the service that is made from them.
//! - [`synthetic`], [`echo`], [`wait`], [`disk`], [`tier`]: services. [`tiers`]: code that services
//!   with leaves share.
//!
//! # Example
//! ```
//! use leeward_services::definition::ServiceDefinition;
//! use leeward_services::synthetic::SyntheticDefinition;
//!
//! // Requests whose service times are exponential with a mean of 10 µs.
//! let requests = SyntheticDefinition.requests("exp:10us")?;
//! assert!(requests.is_cpu_bound());
//! assert_eq!(requests.to_string(), "exp:10us");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
