//! Whether a client keeps to its window, and what becomes of one that does not: one account per connection, pure, O(1).
//!
//! It checks the protocol (docs/protocol.md, "Credit"), so it lives here; how many credits a session holds is the
//! controller's affair (`leeward-core`), which never hears of a call that is refused here.
//!
//! # Why an honest client is never refused
//! The server can't know which of the windows it has told a client had heard when it sent a call. But both streams keep
//! their order, and so the last window that the client had heard is one of those told by now. Say it was the one behind
//! which the server had sent `a` answers, and it was `w`. The client had then heard `a` answers, and it may send its
//! `n`-th call only while `n - 1 - a < w`, that is `n <= a + w`. So every legal call has a number of at most
//!
//! > `edge` = the greatest of 1 (what holds before any window) and `answers + window` over all windows ever told.
//!
//! An edge never goes back, like the right edge of TCP's window: a credit that was taken back after it had been told may
//! still be on its way as a call. Nothing of this depends on time, on how frames were cut into packets, on why a window
//! was told (answer, explicit credit, overcommit, waking), or on which of the legal moments a client sends at.
//!
//! # What a cheater gains
//! Nothing beyond the edge. Every call, refused ones included, has a number, and only windows and answers move the edge:
//! a client that ignores its window has at most as many calls admitted and unanswered as one that used each of its
//! windows fully at the last possible moment. That is one greatest window, once; it is used up by use.

use leeward_core::units::Credits;

/// Refused calls that have no consequence but the refusal. No honest client has one; this is for those with an error of
/// counting that shows now and then.
const TOLERATED_VIOLATIONS: u32 = 64;
/// Pauses before the connection ends.
const PAUSES: u32 = 4;
/// So many calls with credit, one after the other, and what was before is forgotten.
const FORGIVE_AFTER: u32 = 1024;

/// Verdict on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum CallCheck {
    /// The client may have had the credit for it: ask the controller.
    WithinWindow,
    /// There never was a credit for it: drop it with `NoCredit`, unseen by the controller.
    NoCredit,
    /// The client has been refused and paused, and goes on: end the connection.
    Disconnect,
}

/// Account of a connection.
#[derive(Clone, Debug)]
pub(super) struct Enforcement {
    /// Calls received, refused ones included.
    calls: u64,
    /// Answers sent, drops of refused calls included.
    answers: u64,
    /// The greatest number that a lawful call can have.
    window_end: u64,
    /// Calls with credit since the last refusal.
    valid_calls: u32,
    /// Refusals, up to [`TOLERATED`].
    violations: u32,
    /// Pauses so far.
    pauses: u32,
    /// Sweeps that the pause lasts yet.
    scans_left: u32,
}

impl Enforcement {
    /// Account of a client whose windows bind it. It holds nothing but the call on trust: before its welcome the window
    /// is 1.
    pub(super) fn binding() -> Self {
        Enforcement { calls: 0, answers: 0, window_end: 1, valid_calls: 0, violations: 0, pauses: 0, scans_left: 0 }
    }

    /// Account of a client whose windows are advice: every call is lawful.
    pub(super) fn advisory() -> Self {
        Enforcement { window_end: u64::MAX, ..Enforcement::binding() }
    }

    /// A frame that tells `window` and answers nothing is about to be sent.
    pub(super) fn on_window_sent(&mut self, window: Credits) {
        self.window_end = self.window_end.max(self.answers + u64::from(window.0));
    }

    /// An answer that tells `window` is about to be sent.
    pub(super) fn on_answer_sent(&mut self, window: Credits) {
        self.answers += 1;
        self.on_window_sent(window);
    }

    /// Whether the next call would be without credit.
    pub(super) fn is_exhausted(&self) -> bool {
        self.calls >= self.window_end
    }

    /// A call has come.
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
            // Twice as long each time. The first sweep may come at once, so one more.
            self.scans_left = 1 + (1 << self.pauses);
            self.pauses += 1;
        }
        CallCheck::NoCredit
    }

    /// Whether the connection is not to be read.
    pub(super) fn is_paused(&self) -> bool {
        self.scans_left > 0
    }

    /// A sweep has passed: whether this ends a pause.
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
