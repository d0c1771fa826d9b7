//! Begins of calls that the clock did not see: while it stands still, every call that is made seems to begin when it stopped. The scheduler's
//! times are exact, so they tell more of such a call.

use crate::format::meta::{ClockReport, ClockStop};
use crate::trace::Trace;

/// Times at which the clock stood still.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockGaps {
    stops: Vec<ClockStop>,
    /// Between two ticks while the machine was busy; 0 if it never was.
    coarse: u64,
}

impl ClockGaps {
    /// Times at which the clock of a trace stood still.
    pub(crate) fn from_trace(trace: &Trace) -> ClockGaps {
        let ClockReport { stops: stills, coarse, coarse_tick, .. } = trace.pace();
        ClockGaps { stops: stills.clone(), coarse: if *coarse > 0 { *coarse_tick } else { 0 } }
    }

    /// How long after `start` a call may have begun that seems to begin then.
    pub(crate) fn uncertainty(&self, start: u64) -> u64 {
        let still = self.stops.binary_search_by_key(&start, |still| still.start);
        still.map_or(self.coarse, |index| self.stops[index].length)
    }
}
