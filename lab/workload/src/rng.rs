//! Random numbers: one generator per purpose, so that two controllers under the same seed meet the same arrivals and
//! services. Only integer operations and `libm`, so that every machine draws the same bits.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Purpose of a stream of random numbers. Streams of one seed are independent of each other. A stream is found by its
/// place here: new ones come last, or all runs of all seeds would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times and clients of requests.
    Arrivals,
    /// How long they take.
    Service,
    /// Their priorities, and what client halves draw.
    Clients,
    /// Draws of server halves and stealing cores.
    Server,
    /// Jitter of the network.
    Network,
    /// When the machine takes cores away, and for how long.
    Stalls,
    /// To which core a message goes, and where a core begins to look for work.
    Balancing,
    /// Which path they take through an application with locks.
    Paths,
    /// How long calls take at the leaves of a tier.
    Leaves,
    /// How long woken threads take to run.
    Wakes,
    /// Data of a service, where they are made up.
    Data,
    /// Kinds of requests, where there are several.
    Kinds,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        // The multiplier spreads seeds so far apart that two of them, written as the small numbers that people choose,
        // never differ by a purpose only; seeding mixes the bits (SplitMix64).
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose as u64))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 − unit is in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.unit())
    }

    /// Standard normal, by the polar method: no trigonometry.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// Evenly in 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high bits scaled: the bias is below n / 2⁶⁴.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod streams {
    use super::*;

    #[test]
    fn a_new_purpose_leaves_the_streams_of_the_others_as_they_were() {
        use Purpose::{Arrivals, Balancing, Clients, Network, Paths, Server, Service, Stalls};
        let first = [Arrivals, Service, Clients, Server, Network, Stalls, Balancing, Paths]
            .map(|purpose| Rng::new(7, purpose).bits() >> 48);
        assert_eq!(first, [53_638, 42_942, 63_974, 5_178, 46_720, 32_221, 57_636, 18_673]);
    }
}
