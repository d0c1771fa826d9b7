//! The retry budget: how many rejected calls may be sent again, as a part of all calls.
//!
//! A replica that rejects while another has room is worth a retry; when all reject, retries are load on top of the overload,
//! up to a multiple of it. A budget tells the two apart without knowing: each call pays in a part of a retry, each retry
//! takes a whole one (Beyer et al., Site Reliability Engineering, ch. 21, limits retries to 10 % of a client's requests).

/// Price of a retry.
const WHOLE: u32 = 100;
/// Retries that may be saved up, so that a client with few calls has some too.
const SAVED_MAX: u32 = 10;

/// Calls that may be made again, as a part of all calls, with a few saved up.
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

    /// A call was made.
    pub fn deposit(&mut self) {
        self.balance = self.balance.saturating_add(self.percent).min(SAVED_MAX * WHOLE);
    }

    /// Whether one more may be sent again; if so, it is paid for.
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
    fn retries_are_a_tenth_of_calls_and_what_was_saved() {
        let mut budget = RetryBudget::new(10);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.try_withdraw());
        }
        // The first ten are saved, and each tenth call pays for one.
        assert_eq!(retries, 10 + 99);
    }

    #[test]
    fn none_is_none() {
        let mut budget = RetryBudget::new(0);
        for _ in 0..1_000 {
            budget.deposit();
            assert!(!budget.try_withdraw());
        }
    }
}
