//! Wait before the next connection attempt: exponential, with jitter, bounded.

use leeward_core::units::Nanos;

use super::random::Random;

/// Backoff that waits half of a doubling span, plus a random part of the other half.
///
/// Clients that lost one server at one moment do not return together, and none returns at once.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    least: Nanos,
    most: Nanos,
    span: Nanos,
}

impl Backoff {
    pub(super) fn new((least, most): (Nanos, Nanos)) -> Self {
        Backoff { least, most, span: least }
    }

    /// Wait after another failure.
    pub(super) fn next(&mut self, random: &mut Random) -> Nanos {
        let half = self.span.0 / 2;
        self.span = (self.span * 2).min(self.most);
        Nanos(half + random.below(half + 1))
    }

    /// Ends the series of failures after a successful attempt.
    pub(super) fn reset(&mut self) {
        self.span = self.least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_a_limit_and_resets() {
        let mut random = Random::new(7);
        let mut backoff = Backoff::new((Nanos(100), Nanos(1_000)));
        for span in [100, 200, 400, 800, 1_000, 1_000, 1_000] {
            let wait = backoff.next(&mut random).0;
            assert!((span / 2..=span).contains(&wait), "{wait} for {span}");
        }
        backoff.reset();
        assert!(backoff.next(&mut random).0 <= 100);
    }

    #[test]
    fn equal_seeds_give_equal_backoffs_and_different_seeds_differ() {
        let waits = |seed| {
            let (mut random, mut backoff) = (Random::new(seed), Backoff::new((Nanos(1_000_000), Nanos::MAX)));
            (0..8).map(|_| backoff.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
