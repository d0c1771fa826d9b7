//! What clients ask of a server: when, by whom, and how long it takes. Drawn from a seed, the same for every controller
//! and every plant: the simulator and the load generator take their requests from here.
//!
//! - [`demand`]: the description, as plain data.
//! - [`arrivals`]: when requests are issued and by which client.
//! - [`service`]: how long they take.
//! - [`pairs`]: which keys are read and written, for a service that keeps pairs.
//! - [`rng`]: random numbers, one stream per purpose.
//!
//! Never here: what becomes of a request.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod demand;
pub mod pairs;
pub mod rng;
pub mod service;

pub use arrivals::ArrivalStream;
pub use demand::{Arrivals, Segment, Shares, Workload};
pub use pairs::{PairMix, Pairs};
pub use service::Service;
