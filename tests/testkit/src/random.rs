//! Random numbers for tests: one stream per seed, so that failures are reproducible.

/// A stream of random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of a seed. Neighbouring seeds have independent streams.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Draws a number below `below`; 0 if `below` is 0.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below.max(1)
    }

    /// Draws a byte; with probability ½ one of `edges`, which are the format's boundary values.
    pub fn byte(&mut self, edges: &[u8]) -> u8 {
        if self.below(2) == 0 { edges[self.below(edges.len())] } else { self.below(256) as u8 }
    }
}
