//! Time that requests of a route spend inside: from admission until the answer begins, without
//! internal queues that are measured separately. Does not contain its use
//! ([`crate::delay_weight`]).

use leeward_controllers::edge::cost::CostEstimate;
use leeward_core::units::Nanos;

/// Mean deviations above the mean within which nearly all requests are answered.
///
/// A retransmission time-out uses a multiple for the same reason (RFC 6298 §2).
const DISTANCES: u64 = 2;

/// Estimate of the handler time of one route.
#[derive(Debug, Default)]
pub(crate) struct HandlerTime {
    mean: CostEstimate,
    /// Mean distance from the mean.
    deviation: CostEstimate,
}

impl HandlerTime {
    /// Records that a request was inside for `span`.
    pub(crate) fn note(&self, span: Nanos) {
        let mean = self.mean.time().unwrap_or(span);
        self.deviation.record(Nanos(span.0.abs_diff(mean.0)));
        self.mean.record(span);
    }

    /// The mean; 0 before the first request.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean.time().unwrap_or(Nanos::ZERO)
    }

    /// Time within which nearly all requests are answered; 0 before the first request.
    pub(crate) fn upper_bound(&self) -> Nanos {
        self.mean() + self.deviation.time().unwrap_or(Nanos::ZERO) * DISTANCES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_upper_bound_is_two_deviations_above_the_mean() {
        let inside = HandlerTime::default();
        assert_eq!((inside.mean(), inside.upper_bound()), (Nanos::ZERO, Nanos::ZERO));
        for step in 0..2_000 {
            inside.note(Nanos::from_micros(if step % 2 == 0 { 900 } else { 1_100 }));
        }
        let us = |span: Nanos| span.0 / 1_000;
        assert!((990..1_010).contains(&us(inside.mean())), "{}", inside.mean());
        assert!((1_180..1_220).contains(&us(inside.upper_bound())), "{}", inside.upper_bound());
        (0..1_000).for_each(|_| inside.note(Nanos::from_micros(50)));
        assert!(us(inside.upper_bound()) < 60, "what is over is forgotten: {}", inside.upper_bound());
    }
}
