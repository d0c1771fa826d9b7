//! Begins of calls that the clock did not see: while it stands still, every call that is made seems to begin when it stopped. The scheduler's
//! times are exact, so they tell more of such a call.

use crate::format::meta::{Pace, Still};
use crate::trace::Trace;

/// Times at which the clock stood still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsure {
    stills: Vec<Still>,
    /// Between two ticks while the machine was busy; 0 if it never was.
    coarse: u64,
}

impl Unsure {
    /// Times at which the clock of a trace stood still.
    pub(crate) fn of(trace: &Trace) -> Unsure {
        let Pace { stills, coarse, coarse_tick, .. } = trace.pace();
        Unsure { stills: stills.clone(), coarse: if *coarse > 0 { *coarse_tick } else { 0 } }
    }

    /// How long after `start` a call may have begun that seems to begin then.
    pub(crate) fn window(&self, start: u64) -> u64 {
        let still = self.stills.binary_search_by_key(&start, |still| still.start);
        still.map_or(self.coarse, |index| self.stills[index].length)
    }
}
