//! How much a client may say besides its calls: one account per connection, pure, O(1).
//!
//! Signs of life and demands are cheap, but each has to be read and many have to be answered. Whoever sends more of them
//! than any client has a use for is read again when the next sweep refills the account: the flood waits in the flooder's
//! own socket. What calls bring in keeps a client that announces every change of its demand within its means.

/// Words, which are frames that are no calls, from one sweep to the next.
const QUOTA: u32 = 1024;
/// Words that a lawful call earns.
const REFILL_PER_CALL: u32 = 4;

/// Account of a connection.
#[derive(Clone, Debug)]
pub(super) struct ControlQuota {
    remaining: u32,
}

impl ControlQuota {
    /// A full account.
    pub(super) fn new() -> Self {
        ControlQuota { remaining: QUOTA }
    }

    /// A frame has come that is no call.
    pub(super) fn on_control_frame(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
    }

    /// A lawful call has come.
    pub(super) fn on_call(&mut self) {
        self.remaining = (self.remaining + REFILL_PER_CALL).min(QUOTA);
    }

    /// Whether the connection is not to be read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.remaining == 0
    }

    /// A sweep has passed: whether the connection may be read again that might not be before.
    pub(super) fn refill(&mut self) -> bool {
        let was_spent = self.is_exhausted();
        *self = ControlQuota::new();
        was_spent
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_words_is_read_until_the_account_is_empty_and_again_after_a_sweep() {
        let mut chatter = ControlQuota::new();
        for _ in 0..QUOTA {
            assert!(!chatter.is_exhausted());
            chatter.on_control_frame();
        }
        assert!(chatter.is_exhausted());
        assert!(chatter.refill());
        assert!(!chatter.is_exhausted());
        assert!(!chatter.refill(), "only once");
    }

    #[test]
    fn calls_pay_for_what_belongs_to_them() {
        let mut chatter = ControlQuota::new();
        for _ in 0..10 * QUOTA {
            // A client that tells its demand before and after each call.
            chatter.on_control_frame();
            chatter.on_control_frame();
            chatter.on_call();
            assert!(!chatter.is_exhausted());
        }
    }
}
