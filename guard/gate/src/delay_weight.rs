//! Waits in front of a request that will wait inside, too: in an executor's queue each time that what it awaits has come, and for that itself. Of the
//! objective only the rest is left for the wait in front, which counts for as much more as that rest is shorter. Never here: how long requests are
//! inside.

use leeward_core::units::Nanos;

/// Part of the objective that is left for waits in front however long requests are inside: a service that is late by its nature refuses nobody who has not
/// waited.
const LEAST: u64 = 4;

/// Objective over what time inside leaves of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayWeight {
    objective: u64,
    remaining: u64,
}

impl DelayWeight {
    /// A wait counts for what it is.
    pub(crate) const NONE: DelayWeight = DelayWeight { objective: 1, remaining: 1 };

    /// For requests that are inside for so long besides their work.
    pub(crate) fn new(objective: Nanos, besides: Nanos) -> Self {
        let whole = objective.0.max(1);
        DelayWeight { objective: whole, remaining: (whole - besides.0.min(whole - whole / LEAST)).max(1) }
    }

    /// A wait, as long as it counts for.
    pub(crate) fn weighted(self, wait: Nanos) -> Nanos {
        if self.remaining == self.objective {
            return wait;
        }
        Nanos(
            u64::try_from(u128::from(wait.0) * u128::from(self.objective) / u128::from(self.remaining))
                .unwrap_or(u64::MAX),
        )
    }

    /// The wait that counts for `bound`.
    pub(crate) fn unweighted(self, bound: Nanos) -> Nanos {
        Nanos((u128::from(bound.0) * u128::from(self.remaining) / u128::from(self.objective)) as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_for_more_where_less_is_left() {
        let ms = Nanos::from_millis;
        assert_eq!(DelayWeight::new(ms(20), Nanos::ZERO).weighted(ms(8)), ms(8));
        assert_eq!(DelayWeight::new(ms(20), ms(4)).weighted(ms(8)), ms(10));
        assert_eq!(DelayWeight::new(ms(20), ms(4)).unweighted(ms(10)), ms(8));
        let most = DelayWeight::new(ms(20), Nanos::from_secs(60));
        assert_eq!(
            (most.weighted(ms(2)), most.weighted(Nanos::ZERO), most.weighted(Nanos::MAX)),
            (ms(8), Nanos::ZERO, Nanos::MAX)
        );
        assert_eq!(DelayWeight::new(Nanos::ZERO, ms(1)).weighted(ms(1)), ms(1));
    }
}
