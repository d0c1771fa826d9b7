//! What was measured, and what became of each bar: the numbers of the JSON. Never here: measuring, and the table.

use serde::Serialize;

use crate::statistics::Spread;

/// One contender's turn.
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

/// One contender's turns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turns {
    /// Who.
    pub(crate) name: &'static str,
    /// Why it did not run, if it can't here.
    pub(crate) missing: Option<String>,
    /// One per round.
    pub(crate) rounds: Vec<Measurement>,
}

/// What became of one bar.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// What is compared.
    pub(crate) what: &'static str,
    /// The bound, for people.
    pub(crate) asked: String,
    /// The ratio to the best of the others, over the rounds.
    pub(crate) ratio: Spread,
    /// Whether the median is within the bound.
    pub(crate) met: bool,
}

/// One case's results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// The case's name.
    pub(crate) case: &'static str,
    /// One per bar.
    pub(crate) verdicts: Vec<Verdict>,
    /// One per contender.
    pub(crate) contenders: Vec<Turns>,
}
