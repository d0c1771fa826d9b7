//! Quota of a client's control frames, which are all frames but calls: one per connection, pure,
//! O(1).
//!
//! Pings and demands are cheap, but the server has to read each of them and answer many. A client
//! that exceeds the quota is not read until the next scan refills it. The excess frames wait in the
//! client's own socket. Each call refills a part of the quota, so a client that announces every
//! change of its demand stays below it.

/// Control frames between two scans.
const QUOTA: u32 = 1024;
/// Control frames that a valid call adds to the quota.
const REFILL_PER_CALL: u32 = 4;

/// Quota of one connection.
#[derive(Clone, Debug)]
pub(super) struct ControlQuota {
    remaining: u32,
}

impl ControlQuota {
    /// A full quota.
    pub(super) fn new() -> Self {
        ControlQuota { remaining: QUOTA }
    }

    /// Counts a frame that is no call.
    pub(super) fn on_control_frame(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
    }

    /// Counts a valid call.
    pub(super) fn on_call(&mut self) {
        self.remaining = (self.remaining + REFILL_PER_CALL).min(QUOTA);
    }

    /// Whether the connection must not be read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.remaining == 0
    }

    /// Refills the quota at a scan. Returns whether it was exhausted, so that the connection may be
    /// read again.
    pub(super) fn refill(&mut self) -> bool {
        let was_exhausted = self.is_exhausted();
        *self = ControlQuota::new();
        was_exhausted
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn control_frames_are_read_until_the_quota_is_used_up_and_after_a_refill() {
        let mut quota = ControlQuota::new();
        for _ in 0..QUOTA {
            assert!(!quota.is_exhausted());
            quota.on_control_frame();
        }
        assert!(quota.is_exhausted());
        assert!(quota.refill());
        assert!(!quota.is_exhausted());
        assert!(!quota.refill(), "only once");
    }

    #[test]
    fn each_call_refunds_its_control_frames() {
        let mut quota = ControlQuota::new();
        for _ in 0..10 * QUOTA {
            // A client that sends its demand before and after each call.
            quota.on_control_frame();
            quota.on_control_frame();
            quota.on_call();
            assert!(!quota.is_exhausted());
        }
    }
}
