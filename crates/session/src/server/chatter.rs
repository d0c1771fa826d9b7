//! How much a client may say besides its calls, and in how small pieces: one account per connection, pure, O(1).
//!
//! Signs of life and demands are cheap, but each has to be read and many have to be answered. Whoever sends more of them
//! than any client has a use for is read again when the next sweep refills the account: the flood waits in the flooder's
//! own socket. What calls bring in keeps a client that announces every change of its demand within its means.

/// Words, which are frames that are no calls, from one sweep to the next.
const WORDS: u32 = 1024;
/// Reads of few bytes that bring no call, from one sweep to the next.
const READS: u32 = 128;
/// Words, and reads, that a lawful call earns.
const EARNED: u32 = 4;
/// So many bytes at once are no small piece: what they are is charged by its frames.
const FEW: usize = 1024;

/// Account of a connection.
#[derive(Clone, Debug)]
pub(super) struct Chatter {
    words: u32,
    reads: u32,
}

impl Chatter {
    /// A full account.
    pub(super) fn new() -> Self {
        Chatter { words: WORDS, reads: READS }
    }

    /// So many bytes have come at once.
    pub(super) fn read(&mut self, bytes: usize) {
        self.reads = self.reads.saturating_sub(u32::from(bytes < FEW));
    }

    /// A frame has come that is no call.
    pub(super) fn word(&mut self) {
        self.words = self.words.saturating_sub(1);
    }

    /// A lawful call has come.
    pub(super) fn call(&mut self) {
        self.words = (self.words + EARNED).min(WORDS);
        self.reads = (self.reads + EARNED).min(READS);
    }

    /// Whether the connection is not to be read.
    pub(super) fn is_spent(&self) -> bool {
        self.words == 0 || self.reads == 0
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
    fn small_pieces_are_counted_and_large_ones_are_not() {
        let mut chatter = Chatter::new();
        for _ in 0..10 * READS {
            chatter.read(FEW);
        }
        assert!(!chatter.is_spent());
        for _ in 0..READS {
            chatter.read(1);
        }
        assert!(chatter.is_spent());
    }

    #[test]
    fn calls_pay_for_what_belongs_to_them() {
        let mut chatter = Chatter::new();
        for _ in 0..10 * WORDS {
            // A client that tells its demand before and after each call, each in a packet of its own.
            for _ in 0..2 {
                chatter.read(64);
                chatter.word();
            }
            chatter.read(64);
            chatter.call();
            assert!(!chatter.is_spent());
        }
    }
}
