//! Numbers for a controller's choices: which of two is taken, never a secret.

/// A stream of numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct FastRng(u64);

impl FastRng {
    /// Of the core at this place.
    pub fn new(core: usize) -> Self {
        FastRng(0x9E37_79B9_7F4A_7C15 ^ core as u64)
    }

    /// The next one.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
