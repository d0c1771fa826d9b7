//! Retry budget: the rejected calls that may be sent again, as a part of all calls.
//!
//! A retry pays if another replica has spare capacity. If all replicas reject, retries multiply the
//! overload. The budget needs no knowledge of which is the case: each call pays in a part of a
//! retry, and each retry takes a whole one. Beyer et al., Site Reliability Engineering, ch. 21,
//! limit retries to 10 % of a client's requests.

/// Cost of one retry.
const WHOLE: u32 = 100;
/// Retries that the budget can save, so that a client with few calls has some too.
const SAVED_MAX: u32 = 10;

/// Calls that may be made again, as a part of all calls, with a few saved.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    percent: u32,
    balance: u32,
}

impl RetryBudget {
    /// A budget of `percent` retries per hundred calls, with its savings full.
    pub fn new(percent: u32) -> Self {
        RetryBudget { percent, balance: if percent == 0 { 0 } else { SAVED_MAX * WHOLE } }
    }

    /// Pays in for one call.
    pub fn deposit(&mut self) {
        self.balance = self.balance.saturating_add(self.percent).min(SAVED_MAX * WHOLE);
    }

    /// Takes one retry; returns whether the budget had one.
    pub fn try_withdraw(&mut self) -> bool {
        let enough = self.balance >= WHOLE;
        if enough {
            self.balance -= WHOLE;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_of_calls_plus_the_initial_budget() {
        let mut budget = RetryBudget::new(10);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.try_withdraw());
        }
        // Ten retries are saved at the start, and each tenth call pays for one.
        assert_eq!(retries, 10 + 99);
    }

    #[test]
    fn a_budget_of_zero_allows_no_retry() {
        let mut budget = RetryBudget::new(0);
        for _ in 0..1_000 {
            budget.deposit();
            assert!(!budget.try_withdraw());
        }
    }
}
