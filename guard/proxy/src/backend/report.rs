//! What an operator is told about a backend that goes down and comes back. Does not contain the
//! checks.

use leeward_core::units::{Nanos, Time};

/// Least time between two messages about a backend: one that comes and goes must not fill a log.
const SILENCE: Nanos = Nanos::from_secs(5);

/// The state of a backend as the operator knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendReport {
    is_told_down: bool,
    told: Option<Time>,
    reason: String,
}

impl BackendReport {
    /// Records why the backend is down.
    pub(crate) fn record(&mut self, reason: String) {
        self.reason = reason;
    }

    /// What is to be said now, if anything: whether it is up differs from what was said last, which
    /// is some time ago.
    pub(crate) fn take(&mut self, now: Time, is_up: bool) -> Option<String> {
        let is_silent = self.told.is_some_and(|told| now.since(told) < SILENCE);
        if is_up != self.is_told_down || is_silent {
            return None;
        }
        (self.is_told_down, self.told) = (!is_up, Some(now));
        Some(if is_up { "is back".into() } else { format!("is down: {}", self.reason) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_the_last_one_at_last() {
        let mut report = BackendReport::default();
        let mut take = |ms: u64, is_up| {
            report.record("refused".into());
            report.take(Time(ms * 1_000_000), is_up)
        };
        assert_eq!(take(0, true), None, "it has never been down");
        assert_eq!(take(1, false).as_deref(), Some("is down: refused"));
        assert_eq!(take(2, false), None);
        // It comes and goes.
        let told = (1..=5_000).filter(|at| take(2 + at, at % 2 == 0).is_some()).count();
        assert_eq!(told, 1);
        assert_eq!((take(9_000, true), take(9_001, false)), (None, None));
        assert_eq!(take(20_000, false).as_deref(), Some("is down: refused"));
        assert_eq!(take(30_000, true).as_deref(), Some("is back"));
    }
}
