//! Measurements and the verdict on each bound: the numbers in the JSON file. Does not contain
//! measuring, or the table.

use serde::Serialize;

use crate::statistics::Spread;

/// One measurement of one contender.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measurement {
    /// Responses per second.
    pub(crate) rate_per_s: f64,
    /// Median latency in microseconds, where latency is measured.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of latency in microseconds.
    pub(crate) p99_us: Option<f64>,
    /// Share of the time in which the server's process ran; 1 for a spinning server.
    pub(crate) server_cpu: f64,
    /// Share of the time in which the load ran.
    ///
    /// The load never sleeps, so less than 1 means that other programs used its CPU.
    pub(crate) load_cpu: f64,
    /// Share of the time in which the load had nothing to do; near 0, the load may be the limit.
    pub(crate) load_idle: Option<f64>,
    /// In an open loop: share of requests that the load issued late.
    pub(crate) load_late: Option<f64>,
    /// In an open loop: share of requests that the server rejected.
    pub(crate) dropped: Option<f64>,
    /// In an open loop: share of requests that expired at their client, unsent.
    pub(crate) expired: Option<f64>,
}

impl Measurement {
    /// A measurement without values.
    pub(crate) const EMPTY: Measurement = Measurement {
        rate_per_s: f64::NAN,
        p50_us: None,
        p99_us: None,
        server_cpu: f64::NAN,
        load_cpu: f64::NAN,
        load_idle: None,
        load_late: None,
        dropped: None,
        expired: None,
    };
}

/// All measurements of a contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turns {
    /// Name of the contender.
    pub(crate) name: &'static str,
    /// Reason why the contender could not run here.
    pub(crate) missing: Option<String>,
    /// Measurements, one per round.
    pub(crate) rounds: Vec<Measurement>,
}

/// Verdict on a bound.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Description of the quantity.
    pub(crate) what: &'static str,
    /// The bound as text.
    pub(crate) asked: String,
    /// Ratio to the best of the others, over all rounds.
    pub(crate) ratio: Spread,
    /// True if the median is within the bound.
    pub(crate) met: bool,
}

/// Results of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Name of the case.
    pub(crate) case: &'static str,
    /// Verdicts, one per bar.
    pub(crate) verdicts: Vec<Verdict>,
    /// Measurements, one entry per contender.
    pub(crate) contenders: Vec<Turns>,
}
