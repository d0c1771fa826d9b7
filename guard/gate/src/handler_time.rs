//! Time that requests of a route are inside: from their admission until their answer begins, without queues inside that are measured by themselves.
//! Never here: what follows from it ([`crate::stretch`]).

use leeward_controllers::edge::cost::CostEstimate;
use leeward_core::units::Nanos;

/// Mean distances from the mean within which nearly all are: as a retransmission time-out has some, for the same reason (RFC 6298 §2).
const DISTANCES: u64 = 2;

/// Estimate for one route.
#[derive(Debug, Default)]
pub(crate) struct HandlerTime {
    mean: CostEstimate,
    /// Distance from the mean.
    deviation: CostEstimate,
}

impl HandlerTime {
    /// A request was inside for so long.
    pub(crate) fn note(&self, span: Nanos) {
        let mean = self.mean.time().unwrap_or(span);
        self.deviation.record(Nanos(span.0.abs_diff(mean.0)));
        self.mean.record(span);
    }

    /// The mean; nothing before it is known.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean.time().unwrap_or(Nanos::ZERO)
    }

    /// Time within which nearly all are answered; nothing before it is known.
    pub(crate) fn upper_bound(&self) -> Nanos {
        self.mean() + self.deviation.time().unwrap_or(Nanos::ZERO) * DISTANCES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn most_are_within_two_distances_of_the_mean() {
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
