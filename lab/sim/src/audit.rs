//! Looks for what must never be: requests that got lost or ended twice, credits that leaked, cores that idle beside
//! work. A violation is a defect of the simulator or of a controller, never a result.

use leeward_core::server::{Gauges, Session};
use leeward_core::units::Time;

/// The violations found so far.
#[derive(Default)]
pub(crate) struct Audit {
    violations: Vec<String>,
}

/// More would say nothing new.
const KEPT: usize = 8;

impl Audit {
    /// Notes `violation` unless `holds`.
    pub(crate) fn check(&mut self, holds: bool, now: Time, violation: impl FnOnce() -> String) {
        if !holds && self.violations.len() < KEPT {
            self.violations.push(format!("at {} ns: {}", now.0, violation()));
        }
    }

    /// Issued credits are the sum of all windows, and none were issued that don't exist (Breakwater's books).
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
