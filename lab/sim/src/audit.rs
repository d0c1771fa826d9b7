//! The audit: checks invariants during a run, such as exactly-once endings, credit accounting and
//! no idle core beside queued work.
//!
//! A violation is a defect of the simulator or of a controller, never a result.

use leeward_core::server::{Gauges, Session};
use leeward_core::units::Time;

/// Violations found so far.
#[derive(Default)]
pub(crate) struct Audit {
    violations: Vec<String>,
}

/// Number of violations kept; further ones add no information.
const KEPT: usize = 8;

impl Audit {
    /// Records `violation` unless `holds`.
    pub(crate) fn check(&mut self, holds: bool, now: Time, violation: impl FnOnce() -> String) {
        if !holds && self.violations.len() < KEPT {
            self.violations.push(format!("at {} ns: {}", now.0, violation()));
        }
    }

    /// Checks that the credits issued equal the sum of all windows and are not negative
    /// (Breakwater).
    pub(crate) fn check_credits(&mut self, now: Time, gauges: &Gauges, sessions: &[Session]) {
        let Some(issued) = gauges.credits_issued else { return };
        let held: i64 = sessions.iter().map(|session| i64::from(session.window.0)).sum();
        self.check(issued == held, now, || format!("{issued} credits issued, but sessions hold {held}"));
        self.check(issued >= 0, now, || format!("{issued} credits issued"));
    }

    pub(crate) fn into_violations(self) -> Vec<String> {
        self.violations
    }
}
