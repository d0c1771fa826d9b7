//! Observes a service from outside: the data of its metrics, its dashboard and `leeward why`.
//!
//! For authors of servers and gates. Entry points: [`Watch`] on the path of requests, and
//! [`Source`] for readers.
//!
//! - [`Watch`]: a stripe of counters per core, and a ring of decisions. The request path writes it.
//! - [`Decision`], [`DecisionReason`], [`DecisionRing`]: the reason of each rejection, kept by
//!   number. [`explain`]: the same in sentences.
//! - [`LatencyHistogram`]: latencies of results, fine enough for percentiles.
//! - [`Routes`], [`Tenants`]: counts by route and by tenant, for a bounded number of each.
//!   [`exemplar`]: decisions beside the samples that count them.
//! - [`Snapshot`]: state of a server or gate at one moment. [`Source`]: interface that returns
//!   snapshots.
//! - [`exposition`]: snapshots as text for Prometheus and OpenMetrics.
//!
//! # Example
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_observe::{LatencyCounts, LatencyHistogram};
//!
//! let latencies = LatencyHistogram::default();
//! for micros in 1..=100 {
//!     latencies.record(Nanos::from_micros(micros));
//! }
//! let mut counts = LatencyCounts::default();
//! latencies.add_to(&mut counts);
//! assert_eq!(counts.count(), 100);
//! assert!(counts.percentiles().is_some());
//! ```
//!
//! Does not contain sockets, threads, or controllers.

#![forbid(unsafe_code)]

mod address;
mod decision;
pub mod exemplar;
pub mod explain;
pub mod exposition;
mod latency;
mod reason;
mod ring;
mod routes;
pub mod snapshot;
mod source;
mod sync;
mod tenants;
mod waits;
mod watch;

pub use address::with_host;
pub use decision::{Decision, DecisionId, LifecycleStage, ParseDecisionIdError};
pub use exemplar::Exemplar;
pub use latency::{LatencyCounts, LatencyHistogram, Percentiles};
pub use reason::DecisionReason;
pub use ring::DecisionRing;
pub use routes::{Answer, ROUTE_SLOTS, ROUTES_MAX, RouteCounts, Routes};
pub use snapshot::Snapshot;
pub use source::{Source, unix_ns};
pub use tenants::{TENANTS_MAX, Tenants, Usage};
pub use waits::{BOUNDS, WaitCounts, WaitHistogram, bound};
pub use watch::{ControllerState, RING_CAPACITY, SAMPLING_INTERVAL, WaitStage, Watch};
