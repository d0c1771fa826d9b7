//! A service seen from outside: what its metrics, its dashboard and `leeward why` know.
//!
//! - [`Watch`]: a stripe of counters per core, and a ring of decisions. Written on the path of requests.
//! - [`Decision`], [`Reason`], [`Ring`]: why a request was refused, kept by number. [`why`]: the same in sentences.
//! - [`Latencies`]: how long results took, fine enough for percentiles.
//! - [`Routes`], [`Tenants`]: a bounded number of either, told apart. [`exemplar`]: decisions beside the samples that count them.
//! - [`Snapshot`]: the state of a server or gate at one moment. [`Source`]: whatever can be asked for one.
//! - [`exposition`]: snapshots as text for Prometheus and OpenMetrics.
//!
//! Never here: sockets, threads, and who decides.

#![forbid(unsafe_code)]

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
