//! Random numbers for a controller's choices. Not for secrets.

/// A random number generator (xorshift64*).
#[derive(Clone, Debug)]
pub struct FastRng(u64);

impl FastRng {
    /// Makes the generator of a core.
    pub fn new(core: usize) -> Self {
        FastRng(0x9E37_79B9_7F4A_7C15 ^ core as u64)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
