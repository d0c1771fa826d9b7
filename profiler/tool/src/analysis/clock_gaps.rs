//! Calls whose start the clock missed: while the clock is stopped, every call seems to begin at the
//! stop.
//!
//! The scheduler's times are exact, so they narrow the start of such a call.

use crate::format::meta::{ClockReport, ClockStop};
use crate::trace::Trace;

/// Times at which the clock was stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockGaps {
    stops: Vec<ClockStop>,
    /// Time between two ticks while the machine was busy; 0 if it never was.
    coarse: u64,
}

impl ClockGaps {
    /// Collects the stops of a trace's clock.
    pub(crate) fn from_trace(trace: &Trace) -> ClockGaps {
        let ClockReport { stops: stills, coarse, coarse_tick, .. } = trace.pace();
        ClockGaps { stops: stills.clone(), coarse: if *coarse > 0 { *coarse_tick } else { 0 } }
    }

    /// Returns how much later a call may have begun that seems to begin at `start`.
    pub(crate) fn uncertainty(&self, start: u64) -> u64 {
        let stop = self.stops.binary_search_by_key(&start, |stop| stop.start);
        stop.map_or(self.coarse, |index| self.stops[index].length)
    }
}
