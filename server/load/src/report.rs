//! Report of a run, as plain data in raw units: names end in their unit, if any. Serializes to
//! JSON.

use std::collections::BTreeMap;

pub use leeward_outcome::{ClientWindow, FineWindow, Percentiles, RequestCounts};
use serde::Serialize;

/// Results of a single run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Reason for which the run ended.
    pub ending: RunEndReason,
    /// Requests in the schedule. The difference to `totals.offered` was never issued, because the
    /// run was stopped. Zero in a closed loop.
    pub planned: u64,
    /// Time for which requests were issued.
    pub duration_ns: u64,
    /// The part at the beginning that `measured` excludes.
    pub warmup_ns: u64,
    /// Latency objective.
    pub slo_ns: u64,
    /// Ends of all requests, the wait for the last answers included.
    pub totals: RequestCounts,
    /// Counts after the warm-up and before the last request was due. `offered` counts by intended
    /// time, the ends by their own time, so these don't add up.
    pub measured: RequestCounts,
    /// Responses per second in the measured part.
    pub throughput_per_s: f64,
    /// Responses within the objective per second in the measured part.
    pub goodput_per_s: f64,
    /// Latency from the intended time, for all requests due after the warm-up, including late
    /// responses.
    pub latency: Percentiles,
    /// The same requests' latency from the time of sending. Smaller: excludes the wait before that.
    pub latency_from_send: Percentiles,
    /// Time from sending a request to its rejection's arrival; requests due after the warm-up.
    pub reject_delay: Percentiles,
    /// Sojourns that the server reports with its responses.
    pub server_sojourn: Percentiles,
    /// Adherence of this generator to its schedule.
    pub adherence: Adherence,
    /// Rejections by reason, whole run.
    pub drop_reasons: BTreeMap<String, u64>,
    /// Failures by code, whole run.
    pub failures: BTreeMap<String, u64>,
    /// What the server says of its first failure, if it says something.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure_message: String,
    /// Wrong answers within the objective in the measured part: a tier's partial answers are such.
    pub wrong_in_time: u64,
    /// The connections.
    pub connections: Connections,
    /// Bytes of the responses' contents, if they are counted; whole run.
    #[serde(skip_serializing_if = "is_zero")]
    pub content_bytes: u64,
    /// Results of each class of requests, if there are classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassReport>,
    /// Datagrams that clients sent again; whole run.
    pub retransmitted: u64,
    /// Duplicate datagrams received.
    pub duplicates: u64,
    /// Whether the server's windows bind, according to its first welcome: whether its controller
    /// gives credits.
    pub gives_credits: Option<bool>,
    /// The time series, if requested, from the start of the run.
    pub windows: Vec<ClientWindow>,
    /// The fine time series, if requested, from the start of the run.
    pub fine: Vec<FineWindow>,
    /// Failed conservation checks, as text; empty unless this generator has a defect.
    pub violations: Vec<String>,
}

/// Results of one class of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Name of the class.
    pub name: String,
    /// Ends of its requests, whole run.
    pub totals: RequestCounts,
    /// Counts after the warm-up and before the last request was due.
    pub measured: RequestCounts,
    /// Responses within the objective per second in the measured part.
    pub goodput_per_s: f64,
    /// Latency from the intended time, for all requests due after the warm-up.
    pub latency: Percentiles,
    /// Rejections by reason, whole run.
    pub drop_reasons: BTreeMap<String, u64>,
    /// Failures by code, whole run.
    pub failures: BTreeMap<String, u64>,
}

impl ClassReport {
    /// Takes the results of the class `name` out of a report on its requests alone.
    pub fn new(name: String, report: LoadReport) -> Self {
        ClassReport {
            name,
            totals: report.totals,
            measured: report.measured,
            goodput_per_s: report.goodput_per_s,
            latency: report.latency,
            drop_reasons: report.drop_reasons,
            failures: report.failures,
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Reason for which a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEndReason {
    /// All requests were issued and have ended.
    #[default]
    Finished,
    /// All requests were issued, and some had not ended when the wait for the last answers ended.
    Drained,
    /// The caller stopped the run.
    Stopped,
    /// All connections were lost.
    Disconnected,
}

/// Adherence of the generator to its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Adherence {
    /// A request issued later than this after its time is late.
    pub late_after_ns: u64,
    /// Share of late requests, 0..=1, whole run.
    pub late_share: f64,
    /// Time from the intended time to the submission at the client, all requests.
    pub lateness: Percentiles,
    /// Whether the schedule was kept: 99 of 100 requests were issued within the objective. If not,
    /// the latencies are this generator's own, and say nothing of the server.
    pub kept: bool,
}

/// Counts of connections by their end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Welcomed by the server.
    pub opened: u32,
    /// Lost before the end of the run.
    pub lost: u32,
    /// Opened in the place of one that was closed or lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub reopened: u64,
    /// Requests that waited for a connection longer than the objective, or until their time was
    /// over.
    #[serde(skip_serializing_if = "is_zero")]
    pub waited_for: u64,
    /// Reasons of the losses: the first few different ones.
    pub reasons: BTreeMap<String, u32>,
}
