//! Measurements and the verdicts on each bar: the numbers of the JSON. Never here: measuring, and the table.

use serde::Serialize;

use crate::statistics::Spread;

/// Measurement of one contender's turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measurement {
    /// Answers per second.
    pub(crate) rate_per_s: f64,
    /// Median latency in microseconds, where latency is measured.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of latency in microseconds.
    pub(crate) p99_us: Option<f64>,
    /// Share of the time in which the server's process ran; a spinning one always does.
    pub(crate) server_cpu: f64,
    /// Share of the time in which the load ran. It never sleeps: less than 1 means that others took its CPU.
    pub(crate) load_cpu: f64,
    /// Share of the time in which the load had nothing to do: near 0 it may be the limit, not the server.
    pub(crate) load_idle: Option<f64>,
    /// In an open loop: share of requests that the load issued late.
    pub(crate) load_late: Option<f64>,
    /// In an open loop: share of requests that the server rejected.
    pub(crate) dropped: Option<f64>,
    /// In an open loop: share of requests that ended at their client, unsent.
    pub(crate) expired: Option<f64>,
}

impl Measurement {
    /// Nothing measured.
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

/// Turns of a contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turns {
    /// Name of the contender.
    pub(crate) name: &'static str,
    /// Why it did not run, if it can't here.
    pub(crate) missing: Option<String>,
    /// Measurements, one per round.
    pub(crate) rounds: Vec<Measurement>,
}

/// Verdict on a bar.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Quantity compared.
    pub(crate) what: &'static str,
    /// The bound, for people.
    pub(crate) asked: String,
    /// The ratio to the best of the others, over the rounds.
    pub(crate) ratio: Spread,
    /// Whether the median is within the bound.
    pub(crate) met: bool,
}

/// Results of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// The case's name.
    pub(crate) case: &'static str,
    /// Verdicts, one per bar.
    pub(crate) verdicts: Vec<Verdict>,
    /// Turns, one entry per contender.
    pub(crate) contenders: Vec<Turns>,
}
