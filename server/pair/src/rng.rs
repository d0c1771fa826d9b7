//! Random numbers of a pair: all random choices of a run come from one seed.

/// A stream of random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        // Seeds are small numbers, so SplitMix64 spreads them; the state must not be 0.
        let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Rng((bits ^ (bits >> 31)) | 1)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 11) % bound.max(1)
    }

    /// True once in `times`, on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
