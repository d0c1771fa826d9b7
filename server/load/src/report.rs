//! Report of a run, as plain data in raw units: names end in the unit where they have one. Serializes to JSON.

use std::collections::BTreeMap;

pub use leeward_outcome::{ClientWindow, FineWindow, Percentiles, RequestCounts};
use serde::Serialize;

/// Results of a single run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Why the run ended.
    pub ending: RunEndReason,
    /// Requests that the schedule holds; those never issued, because the run was stopped, are the difference to
    /// `totals.offered`. Zero in a closed loop, which has none.
    pub planned: u64,
    /// How long requests were issued.
    pub duration_ns: u64,
    /// The part at the beginning that `measured` leaves out.
    pub warmup_ns: u64,
    /// Latency objective.
    pub slo_ns: u64,
    /// How requests ended, whole run, the wait for the last answers included.
    pub totals: RequestCounts,
    /// Counts after the warm-up and before the last request was due: `offered` by intended time, the ends by their own
    /// time, so these don't add up.
    pub measured: RequestCounts,
    /// Responses per second in the measured part.
    pub throughput_per_s: f64,
    /// Responses within the objective per second in the measured part.
    pub goodput_per_s: f64,
    /// Latency from the intended time, of responses to requests due after the warm-up, however late the response.
    pub latency: Percentiles,
    /// The same requests' time from when they left this client. Smaller: waiting before that is not in it.
    pub latency_from_send: Percentiles,
    /// Time from a request's departure to its drop's arrival; requests due after the warm-up.
    pub reject_delay: Percentiles,
    /// Sojourns that the server reports with its responses.
    pub server_sojourn: Percentiles,
    /// How well this generator kept to its schedule.
    pub adherence: Adherence,
    /// Drops by reason, whole run.
    pub drop_reasons: BTreeMap<String, u64>,
    /// Failures by code, whole run.
    pub failures: BTreeMap<String, u64>,
    /// The connections.
    pub connections: Connections,
    /// Datagrams that clients sent again; whole run.
    pub retransmitted: u64,
    /// Datagrams that came again.
    pub duplicates: u64,
    /// Whether the server's windows bind, as its first welcome said: whether its controller gives credits.
    pub gives_credits: Option<bool>,
    /// The time series, if asked for, from the start of the run.
    pub windows: Vec<ClientWindow>,
    /// The fine time series, if asked for, from the start of the run.
    pub fine: Vec<FineWindow>,
    /// Books that did not balance, in words; empty unless this generator has a defect.
    pub violations: Vec<String>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEndReason {
    /// All requests were issued and have ended.
    #[default]
    Finished,
    /// All requests were issued, and some had not ended when the wait for the last answers was over.
    Drained,
    /// The caller stopped it.
    Stopped,
    /// No connection was left.
    Disconnected,
}

/// How well the generator kept to its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Adherence {
    /// A request issued later than this after its time is late.
    pub late_after_ns: u64,
    /// Share of late requests, 0..=1, whole run.
    pub late_share: f64,
    /// From the intended time to when the request was given to the client, all requests.
    pub lateness: Percentiles,
    /// Whether the schedule was kept: 99 of 100 requests were issued within the objective. Where it was not, the
    /// latencies are this generator's own, and say nothing of the server.
    pub kept: bool,
}

/// Counts of connections by their end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Welcomed by the server.
    pub opened: u32,
    /// Lost before the end of the run.
    pub lost: u32,
    /// Why, for the first few different reasons.
    pub reasons: BTreeMap<String, u32>,
}
