//! Random numbers: one generator per purpose, so that two controllers under the same seed meet the
//! same arrivals and service times.
//!
//! Only integer operations and `libm`, so that every machine draws the same bits.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Purpose of a stream of random numbers. Streams of one seed are independent of each other.
///
/// The position in this list identifies a stream, so new purposes must come last: otherwise all
/// runs of all seeds would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times and clients of requests.
    Arrivals,
    /// Service times of requests.
    Service,
    /// Priorities of requests, and draws of client halves.
    Clients,
    /// Draws of server halves and stealing cores.
    Server,
    /// Jitter of the network.
    Network,
    /// Stalls of the machine.
    Stalls,
    /// Core for a message, and first core of a search for work.
    Balancing,
    /// Paths through an application with locks.
    Paths,
    /// Service times of calls at the leaves of a tier.
    Leaves,
    /// Wake-up latencies of threads.
    Wakes,
    /// Generated data of a service.
    Data,
    /// Kinds of requests.
    Kinds,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        // The multiplier spreads seeds far apart: two small numbers that people choose as seeds
        // never differ only by a purpose. Seeding mixes the bits (SplitMix64).
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose as u64))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws uniformly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws from the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 − unit is in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.unit())
    }

    /// Draws from the standard normal distribution, by the polar method: no trigonometry.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// Draws uniformly from 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        // Scales the high bits: the bias is below n / 2⁶⁴.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod streams {
    use super::*;

    #[test]
    fn a_new_purpose_leaves_the_other_random_streams_unchanged() {
        use Purpose::{Arrivals, Balancing, Clients, Network, Paths, Server, Service, Stalls};
        let first = [Arrivals, Service, Clients, Server, Network, Stalls, Balancing, Paths]
            .map(|purpose| Rng::new(7, purpose).bits() >> 48);
        assert_eq!(first, [53_638, 42_942, 63_974, 5_178, 46_720, 32_221, 57_636, 18_673]);
    }
}
