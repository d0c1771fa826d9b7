//! How much a client may say besides its calls: one account per connection, pure, O(1).
//!
//! Signs of life and demands are cheap, but each has to be read and many have to be answered. Whoever sends more of them
//! than any client has a use for is read again when the next sweep refills the account: the flood waits in the flooder's
//! own socket. What calls bring in keeps a client that announces every change of its demand within its means.

/// Words, which are frames that are no calls, from one sweep to the next.
const WORDS: u32 = 1024;
/// Words that a lawful call earns.
const EARNED: u32 = 4;

/// Account of a connection.
#[derive(Clone, Debug)]
pub(super) struct Chatter {
    words: u32,
}

impl Chatter {
    /// A full account.
    pub(super) fn new() -> Self {
        Chatter { words: WORDS }
    }

    /// A frame has come that is no call.
    pub(super) fn word(&mut self) {
        self.words = self.words.saturating_sub(1);
    }

    /// A lawful call has come.
    pub(super) fn call(&mut self) {
        self.words = (self.words + EARNED).min(WORDS);
    }

    /// Whether the connection is not to be read.
    pub(super) fn is_spent(&self) -> bool {
        self.words == 0
    }

    /// A sweep has passed: whether the connection may be read again that might not be before.
    pub(super) fn swept(&mut self) -> bool {
        let was_spent = self.is_spent();
        *self = Chatter::new();
        was_spent
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_words_is_read_until_the_account_is_empty_and_again_after_a_sweep() {
        let mut chatter = Chatter::new();
        for _ in 0..WORDS {
            assert!(!chatter.is_spent());
            chatter.word();
        }
        assert!(chatter.is_spent());
        assert!(chatter.swept());
        assert!(!chatter.is_spent());
        assert!(!chatter.swept(), "only once");
    }

    #[test]
    fn calls_pay_for_what_belongs_to_them() {
        let mut chatter = Chatter::new();
        for _ in 0..10 * WORDS {
            // A client that tells its demand before and after each call.
            chatter.word();
            chatter.word();
            chatter.call();
            assert!(!chatter.is_spent());
        }
    }
}
