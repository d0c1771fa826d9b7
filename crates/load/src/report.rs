//! Report of a run, as plain data in raw units: names end in the unit where they have one. Serializes to JSON.

use std::collections::BTreeMap;

use serde::Serialize;

/// Results of a single run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Why the run ended.
    pub ending: Ending,
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
    pub totals: Counts,
    /// Counts after the warm-up and before the last request was due: `offered` by intended time, the ends by their own
    /// time, so these don't add up.
    pub measured: Counts,
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
    /// The time series, if asked for, from the start of the run.
    pub windows: Vec<WindowReport>,
    /// The fine time series, if asked for, from the start of the run.
    pub fine: Vec<FineWindow>,
    /// Books that did not balance, in words; empty unless this generator has a defect.
    pub violations: Vec<String>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
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

/// How requests ended. Over a whole run `offered` is the sum of all others but `good` and `late`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Issued: given to the client.
    pub offered: u64,
    /// Of those, issued later than they were due by more than the tolerance.
    pub late: u64,
    /// Responses in time for the application.
    pub completed: u64,
    /// Of those, within the objective, counted from the intended time.
    pub good: u64,
    /// Responses that came, or had not come by the end, after the application's timeout.
    pub timed_out: u64,
    /// Drops by the server.
    pub dropped: u64,
    /// Admitted by the server and ended without a result.
    pub failed: u64,
    /// Unanswered when their connection was lost.
    pub disconnected: u64,
    /// Not sent, because their connection was lost.
    pub unsent: u64,
    /// Expired while waiting at the client.
    pub expired: u64,
    /// Displaced from a full client queue.
    pub overflowed: u64,
    /// Ended at the client because the algorithm expected a drop.
    pub throttled: u64,
    /// Not sent, because longer than the server accepts.
    pub too_long: u64,
    /// Neither answered nor given up when the run ended.
    pub unfinished: u64,
}

impl Counts {
    /// All ends.
    pub fn ended(&self) -> u64 {
        self.completed
            + self.timed_out
            + self.dropped
            + self.failed
            + self.disconnected
            + self.unsent
            + self.expired
            + self.overflowed
            + self.throttled
            + self.too_long
            + self.unfinished
    }
}

/// A distribution of spans, with the histogram's resolution of three digits; the mean is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
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

/// Window of the time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WindowReport {
    /// Its start, from the start of the run.
    pub start_ns: u64,
    /// Counts of the window: `offered` and `late` by intended time, the ends by their own.
    pub counts: Counts,
    /// Latency, from the intended time, of the responses that came in it.
    pub latency: Percentiles,
    /// Time from their requests' departures to the drops that came in it.
    pub reject_delay_mean_ns: f64,
}

/// Window of the fine time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FineWindow {
    /// Responses that came in it.
    pub completed: u64,
    /// Of those, within the objective.
    pub good: u64,
}
