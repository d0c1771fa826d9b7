//! Queueing delay that a request may still spend, charged queue by queue on its way through the
//! server (active synchronization queue management, thesis §2.3.2). Pure: the plant measures, asks
//! and charges.

use crate::units::Nanos;

/// Queueing delay that one request may still spend. Only waiting is charged, never service: a
/// request that computes for long is not late because of a queue (Hoover §3.4).
///
/// ```
/// use leeward_core::budget::Budget;
/// use leeward_core::units::Nanos;
///
/// let micros = Nanos::from_micros;
/// let mut budget = Budget::from_target_delay(micros(200), micros(30), micros(46));
/// assert_eq!(budget.remaining(), Some(micros(124)));
/// budget.charge(micros(100)); // in the run queue
/// assert!(budget.allows(micros(24)));
/// assert!(!budget.allows(micros(25))); // a lock whose oldest waiter has waited that long
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(Nanos);

impl Budget {
    /// No limit: no queue rejects this request.
    pub const UNLIMITED: Budget = Budget(Nanos::MAX);

    /// At most `span` of queueing.
    pub const fn new(span: Nanos) -> Self {
        Budget(span)
    }

    /// Budget that a target delay leaves for queueing: target − p99 of the network − p99 of the
    /// service (thesis §2.3.2); zero if these two exceed it.
    pub fn from_target_delay(target: Nanos, network_p99: Nanos, service_p99: Nanos) -> Self {
        Budget(Nanos(target.0.saturating_sub(network_p99.0).saturating_sub(service_p99.0)))
    }

    /// Whether a request may enter a queue with an expected `delay`. The delay is the age of the
    /// queue's oldest entry, plus for a lock the run queue's delay after it (Hoover §3.4).
    pub fn allows(self, delay: Nanos) -> bool {
        self == Budget::UNLIMITED || delay <= self.0
    }

    /// Subtracts the time that the request waited, down to zero; an unlimited budget stays
    /// unlimited.
    pub fn charge(&mut self, waited: Nanos) {
        if *self != Budget::UNLIMITED {
            self.0 = Nanos(self.0.0.saturating_sub(waited.0));
        }
    }

    /// Whether the budget is zero.
    pub fn is_spent(self) -> bool {
        self.0 == Nanos::ZERO
    }

    /// The remaining budget; `None` without a limit.
    pub fn remaining(self) -> Option<Nanos> {
        (self != Budget::UNLIMITED).then_some(self.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charges_stop_at_an_empty_budget() {
        let mut budget = Budget::new(Nanos(10));
        budget.charge(Nanos(7));
        assert_eq!(budget.remaining(), Some(Nanos(3)));
        budget.charge(Nanos(7));
        assert_eq!(budget.remaining(), Some(Nanos::ZERO));
        assert!(budget.allows(Nanos::ZERO) && !budget.allows(Nanos(1)) && budget.is_spent());
    }

    #[test]
    fn an_unlimited_budget_stays_unlimited() {
        let mut budget = Budget::UNLIMITED;
        budget.charge(Nanos::MAX);
        assert!(budget.allows(Nanos::MAX));
        assert_eq!(budget.remaining(), None);
    }

    #[test]
    fn a_delay_over_the_target_leaves_an_empty_budget() {
        assert_eq!(Budget::from_target_delay(Nanos(5), Nanos(3), Nanos(3)), Budget::new(Nanos::ZERO));
    }
}
