//! Requests of clients: when each comes, from which client, and how long it takes. They are drawn from a seed, the same
//! for every controller and every plant: the simulator and the load generator take their requests from here.
//!
//! - [`application`]: which paths requests take through the server, and which locks they hold there.
//! - [`demand`]: the description, as plain data.
//! - [`arrivals`]: when requests are issued and by which client.
//! - [`thinking`]: the same where clients wait for answers first.
//! - [`service`]: how long they take.
//! - [`kinds`]: for whom they are, how important and how dear.
//! - [`alias`]: drawing by weight.
//! - [`rng`]: random numbers, one stream per purpose.
//!
//! Never here: what becomes of a request.

#![forbid(unsafe_code)]

pub mod alias;
pub mod application;
pub mod arrivals;
pub mod demand;
pub mod kinds;
pub mod rng;
pub mod service_time;
pub mod think_times;

pub use application::{Application, Path, Step};
pub use arrivals::ArrivalStream;
pub use demand::{Arrivals, Segment, Shares, Workload};
pub use kinds::{KindStream, RequestKind, RequestKinds};
pub use service_time::ServiceTime;
pub use think_times::ThinkTimes;
