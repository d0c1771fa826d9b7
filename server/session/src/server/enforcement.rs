//! Checks that a client keeps to its window, and reacts to violations: one account per connection,
//! pure, O(1).
//!
//! The check belongs to the protocol (docs/protocol.md, "Credit"). The controller (`leeward-core`)
//! decides how many credits a session holds, and never sees a call that is rejected here.
//!
//! # Why an honest client is never rejected
//! The server can't know the newest window that a client had received when it sent a call. But both
//! streams keep their order, so that window is one of those sent by now. Suppose the server sent
//! that window `w` after `a` answers. The client had then received `a` answers. The client may send
//! its `n`-th call only while `n - 1 - a < w`, that is `n <= a + w`. So every valid call has a
//! number of at most
//!
//! > `window_end` = the greatest of 1 (before any window) and `answers + window` over sent windows.
//!
//! The window end never decreases, like the right edge of TCP's window: a call may still use a
//! credit that was revoked after it was sent. The argument does not depend on time, on the division
//! of frames into packets, or on the moment at which a client sends. The reason for a window does
//! not matter either (answer, explicit credit, overcommitment, wake-up).
//!
//! # What a violating client gains
//! Nothing beyond the window end. Every call has a number, rejected calls included, and only
//! windows and answers move the window end. A client that ignores its window has no more admitted,
//! unanswered calls than a client that used each window fully at the last moment. The gain is one
//! greatest window, once.

use leeward_core::units::Credits;

/// Violations that only cause a rejection. An honest client has none; the tolerance is for a client
/// that miscounts now and then.
const TOLERATED_VIOLATIONS: u32 = 64;
/// Pauses before the connection ends.
const PAUSES: u32 = 4;
/// Consecutive calls with credit after which earlier violations are forgiven.
const FORGIVE_AFTER: u32 = 1024;

/// Result of checking a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum CallCheck {
    /// The client may have had the credit for it: the controller decides.
    WithinWindow,
    /// No window ever covered it: reject it with `NoCredit`, without the controller.
    NoCredit,
    /// The client continues after rejections and pauses: close the connection.
    Disconnect,
}

/// Enforcement state of one connection.
#[derive(Clone, Debug)]
pub(super) struct Enforcement {
    /// Calls received, rejected ones included.
    calls: u64,
    /// Answers sent, rejections for missing credit included.
    answers: u64,
    /// The greatest number that a valid call can have.
    window_end: u64,
    /// Calls with credit since the last violation.
    valid_calls: u32,
    /// Violations, up to [`TOLERATED_VIOLATIONS`].
    violations: u32,
    /// Pauses so far.
    pauses: u32,
    /// Scans until the pause ends.
    scans_left: u32,
}

impl Enforcement {
    /// State of a client whose windows bind it. Its window is 1 before the welcome: the call on
    /// trust.
    pub(super) fn binding() -> Self {
        Enforcement { calls: 0, answers: 0, window_end: 1, valid_calls: 0, violations: 0, pauses: 0, scans_left: 0 }
    }

    /// State of a client whose windows are advisory: every call is valid.
    pub(super) fn advisory() -> Self {
        Enforcement { window_end: u64::MAX, ..Enforcement::binding() }
    }

    /// Records a window that is sent without an answer, just before sending.
    pub(super) fn on_window_sent(&mut self, window: Credits) {
        self.window_end = self.window_end.max(self.answers + u64::from(window.0));
    }

    /// Records a window that is sent with an answer, just before sending.
    pub(super) fn on_answer_sent(&mut self, window: Credits) {
        self.answers += 1;
        self.on_window_sent(window);
    }

    /// Whether the next call would be without credit.
    pub(super) fn is_exhausted(&self) -> bool {
        self.calls >= self.window_end
    }

    /// Checks a call that has arrived.
    pub(super) fn on_call(&mut self) -> CallCheck {
        self.calls += 1;
        if self.calls <= self.window_end {
            self.forgive();
            return CallCheck::WithinWindow;
        }
        self.valid_calls = 0;
        if self.violations < TOLERATED_VIOLATIONS {
            self.violations += 1;
        } else if self.pauses == PAUSES {
            return CallCheck::Disconnect;
        } else if self.scans_left == 0 {
            // Each pause is twice as long. The first scan may follow at once, so one scan is added.
            self.scans_left = 1 + (1 << self.pauses);
            self.pauses += 1;
        }
        CallCheck::NoCredit
    }

    /// Whether the connection must not be read.
    pub(super) fn is_paused(&self) -> bool {
        self.scans_left > 0
    }

    /// Handles a scan. Returns whether it ends a pause.
    pub(super) fn on_scan(&mut self) -> bool {
        let was_paused = self.is_paused();
        self.scans_left = self.scans_left.saturating_sub(1);
        was_paused && !self.is_paused()
    }

    fn forgive(&mut self) {
        if self.violations > 0 {
            self.valid_calls += 1;
            if self.valid_calls == FORGIVE_AFTER {
                (self.valid_calls, self.violations, self.pauses) = (0, 0, 0);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
