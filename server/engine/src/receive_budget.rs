//! Bounds the memory of requests longer than a connection's own buffer, for all connections of a
//! core.
//!
//! A request's whole length is granted before more of it is read, so that a request that has begun
//! can finish. A connection without a grant is not read. While others wait, a connection with a
//! grant has little time to continue.

use crate::trim::{HighWaterMark, MANY_BYTES};

/// Account of the bytes granted to a core's connections.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    limit: usize,
    granted: usize,
    /// High-water mark of `granted`, so that freed memory is given back to the system.
    high_water: HighWaterMark,
    /// Whether a connection waits for memory.
    pub(crate) is_short: bool,
}

impl ReceiveBudget {
    /// Makes an account with a limit of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        ReceiveBudget { limit, granted: 0, high_water: HighWaterMark::new(MANY_BYTES), is_short: false }
    }

    /// Changes a connection's grant from `held` to `wanted` bytes, if the limit allows. A single
    /// request always gets its memory: without others, it may exceed the limit.
    pub(crate) fn resize(&mut self, held: &mut usize, wanted: usize) -> bool {
        let others = self.granted - *held;
        if wanted > *held && others > 0 && others + wanted > self.limit {
            self.is_short = true;
            return false;
        }
        self.granted = others + wanted;
        self.high_water.note(self.granted);
        *held = wanted;
        true
    }

    /// Returns, once, whether much was granted and hardly anything is now.
    pub(crate) fn has_receded(&mut self) -> bool {
        self.high_water.has_receded(self.granted)
    }

    /// Returns whether connections should free memory as soon as they don't need it.
    pub(crate) fn is_tight(&self) -> bool {
        self.granted > self.limit / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_memory_stays_within_the_limit() {
        let mut budget = ReceiveBudget::new(100);
        let mut held = [0; 3];
        assert!(budget.resize(&mut held[0], 60));
        assert!(budget.resize(&mut held[1], 40));
        assert!(budget.is_tight() && !budget.is_short);
        assert!(!budget.resize(&mut held[2], 1), "full");
        assert!(budget.is_short);
        assert!(budget.resize(&mut held[0], 0));
        assert!(budget.resize(&mut held[2], 60));
        assert_eq!((budget.granted, held), (100, [0, 40, 60]));
    }

    #[test]
    fn a_receded_peak_is_reported_once() {
        let mut budget = ReceiveBudget::new(10 * MANY_BYTES);
        let mut held = 0;
        assert!(budget.resize(&mut held, MANY_BYTES));
        assert!(!budget.has_receded());
        assert!(budget.resize(&mut held, 0));
        assert!(budget.has_receded());
        assert!(!budget.has_receded());
    }

    #[test]
    fn an_oversized_request_is_granted_alone() {
        let mut budget = ReceiveBudget::new(100);
        let mut held = [0; 2];
        assert!(budget.resize(&mut held[0], 150));
        assert!(!budget.resize(&mut held[1], 1));
        assert!(budget.resize(&mut held[0], 150), "it has it already");
        assert!(budget.resize(&mut held[0], 0));
        assert!(budget.resize(&mut held[1], 1));
    }
}
