//! Random numbers from a seed: for choices and jitter, never for secrets.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA'14); any seed works.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Draws a number of `0..count`, nearly uniformly; 0 if the range is empty.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(count)) >> 64) as u64
    }
}
