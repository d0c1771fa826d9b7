//! Retries that a caller may make: a share of its answered calls, saved up to a bound.

/// Retries that may be made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryBudget(f64);

impl RetryBudget {
    /// Retries that are saved up at most.
    const MAX: f64 = 10.0;

    /// A call was answered with a result: `share` of a retry more.
    pub(super) fn deposit(&mut self, share: f64) {
        self.0 = (self.0 + share).min(Self::MAX);
    }

    /// Whether a call may be made once more; that is paid for then.
    pub(super) fn withdraw(&mut self) -> bool {
        let may = self.0 >= 1.0;
        self.0 -= if may { 1.0 } else { 0.0 };
        may
    }
}
