//! Retry budget of a caller: a share of its answered calls, saved up to a bound.

/// Number of retries that may be made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryBudget(f64);

impl RetryBudget {
    /// Maximum number of saved retries.
    const MAX: f64 = 10.0;

    /// Adds `share` of a retry after a successful call.
    pub(super) fn deposit(&mut self, share: f64) {
        self.0 = (self.0 + share).min(Self::MAX);
    }

    /// Takes one retry from the budget; `false` if there is none.
    pub(super) fn withdraw(&mut self) -> bool {
        let is_allowed = self.0 >= 1.0;
        self.0 -= if is_allowed { 1.0 } else { 0.0 };
        is_allowed
    }
}
