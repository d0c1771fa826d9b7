//! Estimate of the calls that a recording missed.
//!
//! - The clock was stopped: a call that begins and ends meanwhile leaves no record.
//! - Functions were omitted to keep the recording within its share of the CPU.
//! - The program was recorded in windows of time.

use serde::Serialize;

use crate::format::EventKind;
use crate::format::meta::{Engine, OverheadReport};
use crate::trace::{ProgressCallback, Trace, TraceError};

/// Gaps of a recording. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingGaps {
    /// Share of the time in which the clock was stopped.
    pub stood: f64,
    /// Share of missing calls, assuming that they are like the recorded ones.
    pub calls: f64,
    /// Share of the time in which ticks were further apart than configured, because the machine was
    /// busy.
    pub coarse: f64,
    /// Distance of ticks at that time, in nanoseconds.
    pub coarse_tick: u64,
    /// Overhead of a recording with a limited share of the CPU, and its omissions.
    pub share: Option<OverheadReport>,
    /// Share of the time that was recorded, in windows, where it was not all: counts are of the
    /// windows. `None`, too, if the recorder was killed before it could say.
    pub recorded: Option<f64>,
    /// The time was recorded in windows.
    pub in_windows: bool,
}

/// Steps per doubling of a duration.
const STEPS: f64 = 8.0;
const LENGTHS: usize = 64 * 8;

/// Estimates the gaps. Reads the calls of the trace if the clock was ever stopped.
///
/// # Errors
/// The trace can't be read any more, or `watch` stops the reading.
pub fn missing(trace: &Trace, watch: &mut ProgressCallback<'_>) -> Result<RecordingGaps, TraceError> {
    let (pace, span) = (trace.pace(), trace.counts().span().max(1) as f64);
    if trace.header().engine == Engine::Samples {
        let lasted = trace.duration().unwrap_or(0).max(trace.counts().span()).max(1) as f64;
        let in_windows = pace.stopped > 0;
        // Without an end it is not known up to when the events reach.
        let recorded = (in_windows && trace.end().is_some()).then(|| (1.0 - pace.stopped as f64 / lasted).max(0.0));
        return Ok(RecordingGaps { recorded, in_windows, ..RecordingGaps::default() });
    }
    let mut missing = RecordingGaps {
        stood: (pace.stopped as f64 / span).min(1.0),
        calls: 0.0,
        coarse: (pace.coarse as f64 / span).min(1.0),
        coarse_tick: pace.coarse_tick,
        share: trace.share().cloned(),
        recorded: None,
        in_windows: false,
    };
    if pace.stops.is_empty() || trace.counts().calls == 0 {
        return Ok(missing);
    }
    let mut lengths = vec![0_u64; LENGTHS];
    trace.overlapping(0, u64::MAX, watch, |event| {
        if let EventKind::Call { duration, .. } = event.kind {
            lengths[length(duration)] += 1;
        }
    })?;
    // Activity of the program in each stop, relative to its usual activity: nothing is missed where
    // nothing runs.
    let usual = (pace.used as f64 / span).max(0.01);
    let stops: Vec<(f64, f64)> = pace
        .stops
        .iter()
        .map(|stop| (stop.length as f64, (stop.used as f64 / stop.length.max(1) as f64 / usual).min(span)))
        .collect();
    // The list may contain only a part of the stops.
    let listed: f64 = stops.iter().map(|(length, _)| length).sum();
    let scale = (pace.stopped as f64 / listed.max(1.0)).max(1.0);
    let (mut recorded, mut lost) = (0.0, 0.0);
    for (index, count) in lengths.iter().enumerate().filter(|(_, count)| **count > 0) {
        let duration = (index as f64 / STEPS).exp2();
        // A call of this length is missed if it begins so early in a stop that it ends in it.
        let hidden: f64 = stops.iter().map(|(length, busy)| (length - duration).max(0.0) * busy).sum();
        let share = (hidden * scale / span).min(0.99);
        recorded += *count as f64;
        lost += *count as f64 * share / (1.0 - share);
    }
    missing.calls = lost / (recorded + lost).max(1.0);
    Ok(missing)
}

fn length(duration: u64) -> usize {
    ((duration.max(1) as f64).log2() * STEPS) as usize
}

impl RecordingGaps {
    /// Describes the gaps in a sentence; `None` if there are none.
    pub fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.in_windows {
            let part = self.recorded.map_or("a part".into(), |recorded| format!("{:.1} %", recorded * 100.0));
            parts.push(format!(
                "{part} of the time was recorded, in windows, so that it costs the program little: counts and percentiles are \
                 of these, and requests that were under way at a window's border are missing (--overhead allows more)",
            ));
        }
        if self.coarse >= 0.01 {
            parts.push(format!(
                "calls shorter than {} may be missing: the machine was busy for {:.0} % of the time",
                crate::span::format_nanos(self.coarse_tick.saturating_mul(2)),
                self.coarse * 100.0
            ));
        }
        if self.stood >= 0.001 {
            parts.push(format!(
                "about {:.1} % of the calls are missing: the clock stood still for {:.1} % of the time",
                self.calls * 100.0,
                self.stood * 100.0
            ));
        }
        if let Some(share) =
            self.share.as_ref().filter(|share| share.missed > 0 || share.holders || share.waits || share.sched)
        {
            parts.push(describe_omitted(share));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Describes the omissions that keep the recording within its share.
fn describe_omitted(share: &OverheadReport) -> String {
    let mut parts = Vec::new();
    if share.missed > 0 {
        parts.push(format!(
            "{} of {} functions were left out at times, with {:.0} % of all calls (on average they last {} at most)",
            share.left_out,
            share.functions,
            share.missed as f64 * 100.0 / share.calls.max(1) as f64,
            crate::span::format_nanos(share.longest)
        ));
    }
    for (is_out, name) in
        [(share.waits, "locks"), (share.holders && !share.waits, "holders of locks"), (share.sched, "scheduler events")]
    {
        if is_out {
            parts.push(format!("{name} were left out from some time on"));
        }
    }
    format!("to keep to {} % of the CPU time, {}", share.asked as f64 / 1e4, parts.join(", and "))
}
