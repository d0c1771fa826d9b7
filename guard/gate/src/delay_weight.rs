//! Weight of a queueing delay in front of requests that also wait inside their handler. Such a
//! request waits inside for other services, and in an executor's queue each time that it is woken.
//! The delay in front may use only the rest of the objective; the shorter the rest, the more it
//! counts. Does not contain the measurement of time inside.

use leeward_core::units::Nanos;

/// Divisor of the objective: a quarter is always left for the delay in front.
///
/// A slow service thus rejects no request that has not waited.
const REMAINING_DIVISOR: u64 = 4;

/// The objective divided by the part of it that the time inside leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayWeight {
    objective: u64,
    remaining: u64,
}

impl DelayWeight {
    /// Weight 1: a delay counts as it is.
    pub(crate) const NONE: DelayWeight = DelayWeight { objective: 1, remaining: 1 };

    /// Weight for requests that spend `awaited` inside in addition to their work.
    pub(crate) fn new(objective: Nanos, awaited: Nanos) -> Self {
        let objective_ns = objective.0.max(1);
        DelayWeight {
            objective: objective_ns,
            remaining: (objective_ns - awaited.0.min(objective_ns - objective_ns / REMAINING_DIVISOR)).max(1),
        }
    }

    /// The delay, multiplied by the weight.
    pub(crate) fn weighted(self, wait: Nanos) -> Nanos {
        if self.remaining == self.objective {
            return wait;
        }
        Nanos(proportion(wait.0, self.objective, self.remaining))
    }

    /// The delay whose weighted value is `bound`.
    pub(crate) fn unweighted(self, bound: Nanos) -> Nanos {
        Nanos(proportion(bound.0, self.remaining, self.objective))
    }
}

/// `value` × `times` / `of`, at most [`u64::MAX`].
fn proportion(value: u64, times: u64, of: u64) -> u64 {
    match value.checked_mul(times) {
        // A division of 64 bits takes a few nanoseconds, one of 128 bits several times as many.
        Some(product) => product / of,
        None => u64::try_from(u128::from(value) * u128::from(times) / u128::from(of)).unwrap_or(u64::MAX),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_delay_weighs_more_when_less_of_the_slo_is_left() {
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
