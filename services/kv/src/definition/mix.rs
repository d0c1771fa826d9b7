//! Client requests to a key-value service: keys, reads and writes, lengths of keys and values.
//!
//! The presets follow published workloads. A comment beside a value names our assumption where
//! nothing was published.

use leeward_core::units::UnitError;
use leeward_workload::alias::AliasTable;
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// Number of pairs in every preset (thesis §2.5.3).
pub const PAIRS: u32 = 100_000;

/// A published workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairMix {
    /// Facebook's general-purpose pool: 30 reads per write, long-tailed sizes.
    Etc,
    /// Facebook's account states: 99.8 % reads, values of 2 bytes.
    Usr,
    /// Facebook's browser information: 82 % writes.
    Var,
    /// YCSB's workload A: as many reads as writes, Zipfian 0.99, values of 1,000 bytes.
    YcsbA,
}

impl PairMix {
    /// All presets.
    pub const ALL: [PairMix; 4] = [PairMix::Etc, PairMix::Usr, PairMix::Var, PairMix::YcsbA];

    fn write_share(self) -> f64 {
        match self {
            // 30 GET to 1 UPDATE (Atikoglu et al. 2012).
            PairMix::Etc => 1.0 / 31.0,
            // Thesis §2.5.2.
            PairMix::Usr => 0.002,
            // Thesis §2.5.3.
            PairMix::Var => 0.82,
            PairMix::YcsbA => 0.5,
        }
    }

    /// Relative weight of the key at `rank`; rank 0 is the most popular.
    fn weight(self, rank: u32) -> f64 {
        // Keys within one part have equal weights: our assumption.
        let parts = |popular: f64, share: f64| {
            let popular = popular * f64::from(PAIRS);
            let rest = f64::from(PAIRS) - popular;
            if f64::from(rank) < popular { share / popular } else { (1.0 - share) / rest }
        };
        match self {
            // The less popular half gets 1 %.
            PairMix::Etc => parts(0.5, 0.99),
            // 20 % of the keys get 80 % (thesis §2.5.4).
            PairMix::Usr => parts(0.2, 0.8),
            // 10 % of the keys get 90 % (thesis §2.5.3).
            PairMix::Var => parts(0.1, 0.9),
            PairMix::YcsbA => libm::pow(f64::from(rank) + 1.0, -0.99),
        }
    }

    /// Draws a key's length in bytes.
    fn key_length(self, rng: &mut Rng) -> usize {
        match self {
            // Generalized extreme value (Atikoglu et al. 2012), clamped to memcached's limit and to
            // distinct keys.
            PairMix::Etc => {
                let (location, scale, shape) = (30.7984, 8.20449, 0.078688);
                let drawn = location + scale * (libm::pow(rng.exponential(), -shape) - 1.0) / shape;
                (drawn as usize).clamp(KEY_MIN, 250)
            }
            // 16 or 21; equal frequency is our assumption.
            PairMix::Usr => [16, 21][rng.below(2) as usize],
            // 90 % have 31; 16 to 45 for the others is our assumption.
            PairMix::Var => {
                if rng.unit() < 0.9 {
                    31
                } else {
                    16 + rng.below(30) as usize
                }
            }
            // `user` and a number of 19 digits.
            PairMix::YcsbA => 23,
        }
    }

    /// Draws a value's length in bytes.
    fn value_length(self, rng: &mut Rng) -> usize {
        match self {
            PairMix::Etc => {
                let drawn = rng.unit();
                let mut sum = 0.0;
                for (length, share) in ETC_SMALL.iter().enumerate() {
                    sum += share;
                    if drawn < sum {
                        return length;
                    }
                }
                // Generalized Pareto beyond 14 bytes, cut off at 1,000,000 so that it fits into an
                // item.
                let (location, scale, shape) = (15.0, 214.476, 0.348238);
                let drawn = location + scale * (libm::exp(shape * rng.exponential()) - 1.0) / shape;
                (drawn as usize).min(1_000_000)
            }
            PairMix::Usr => 2,
            // Unpublished. The thesis's profiler runs (§3.5) have these: our assumption for VAR.
            PairMix::Var => 4 + rng.below(1021) as usize,
            // Ten fields of 100 bytes.
            PairMix::YcsbA => 1000,
        }
    }
}

impl Display for PairMix {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairMix::Etc => "kv:etc",
            PairMix::Usr => "kv:usr",
            PairMix::Var => "kv:var",
            PairMix::YcsbA => "kv:ycsb-a",
        })
    }
}

/// Workload of a key-value service: pairs of a mix, and the number of keys per read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PairWorkload {
    /// Pairs and share of writes.
    pub mix: PairMix,
    /// Keys per read, 1 to [`KEYS_MAX`]. A write has one key.
    pub keys: u32,
}

/// Greatest number of keys per read.
pub const KEYS_MAX: u32 = 100;

impl PairWorkload {
    /// Parses `kv:etc`, `kv:usr`, `kv:var` or `kv:ycsb-a`, optionally followed by `:keys=24`.
    ///
    /// # Errors
    /// Any other text.
    ///
    /// ```
    /// use leeward_kv::definition::{PairMix, PairWorkload};
    ///
    /// assert_eq!(PairWorkload::parse("kv:usr")?, PairWorkload { mix: PairMix::Usr, keys: 1 });
    /// assert_eq!(PairWorkload::parse("kv:usr:keys=24")?.keys, 24);
    /// # Ok::<(), leeward_core::units::UnitError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        const EXPECTED: &str = "pairs such as `kv:usr`, `kv:var`, `kv:etc` or `kv:ycsb-a`, or with 1 to 100 keys per read as `kv:usr:keys=24`";
        let fail = || UnitError { written: text.chars().take(40).collect(), expected: EXPECTED };
        let (name, keys) = match text.split_once(":keys=") {
            None => (text, 1),
            Some((name, keys)) => (name, keys.parse().map_err(|_| fail())?),
        };
        let mix = PairMix::ALL.into_iter().find(|mix| mix.to_string() == name).ok_or_else(fail)?;
        if (1..=KEYS_MAX).contains(&keys) { Ok(PairWorkload { mix, keys }) } else { Err(fail()) }
    }
}

impl From<PairMix> for PairWorkload {
    /// Returns the mix with one key per read.
    fn from(mix: PairMix) -> Self {
        PairWorkload { mix, keys: 1 }
    }
}

impl Display for PairWorkload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.keys {
            1 => self.mix.fmt(f),
            keys => write!(f, "{}:keys={keys}", self.mix),
        }
    }
}

/// Length of the shortest key: a letter and the digits that distinguish keys.
const KEY_MIN: usize = 8;

/// Shares of ETC's values of 0 to 14 bytes; the other values are longer.
///
/// Source: Atikoglu et al. 2012, table 5; our transcription, not checked against the paper.
const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989,
    0.00092, 0.00326, 0.01980,
];

/// One request for pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairRequest {
    /// The pair's number, below [`PAIRS`]; of several pairs the first.
    pub number: u32,
    /// Length of the new value in bytes; `None` for a read.
    pub write: Option<usize>,
}

/// Draws requests of a workload.
#[derive(Clone, Debug)]
pub struct Pairs {
    workload: PairWorkload,
    popularity: Arc<AliasTable>,
    /// All keys concatenated, and the end of each: clients that format keys would be busier than
    /// the server.
    keys: Arc<(Vec<u8>, Vec<u32>)>,
}

impl Pairs {
    /// Prepares the keys and popularities of the workload.
    pub fn new(service: impl Into<PairWorkload>) -> Self {
        let service = service.into();
        let weights: Vec<f64> = (0..PAIRS).map(|rank| service.mix.weight(rank)).collect();
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(PAIRS as usize));
        for number in 0..PAIRS {
            let length = service.mix.key_length(&mut Rng::new(number.into(), Purpose::Clients));
            let digits = format!("k{number:07}");
            bytes.extend(std::iter::repeat_n(b'-', length.saturating_sub(digits.len())));
            bytes.extend_from_slice(digits.as_bytes());
            ends.push(bytes.len() as u32);
        }
        Pairs { workload: service, popularity: Arc::new(AliasTable::new(&weights)), keys: Arc::new((bytes, ends)) }
    }

    /// Returns the workload.
    pub fn workload(&self) -> PairWorkload {
        self.workload
    }

    /// Draws the request that these random bits stand for.
    pub fn draw(&self, random: u64) -> PairRequest {
        let mut rng = Rng::new(random, Purpose::Service);
        let number = self.popularity.draw(&mut rng);
        let write = rng.unit() < self.workload.mix.write_share();
        PairRequest { number, write: write.then(|| self.workload.mix.value_length(&mut rng)) }
    }

    /// Draws all pairs of a read; the first is the pair of [`Pairs::draw`].
    pub fn draw_read(&self, random: u64) -> impl Iterator<Item = u32> + '_ {
        let first = self.popularity.draw(&mut Rng::new(random, Purpose::Service));
        let mut rng = Rng::new(random, Purpose::Clients);
        std::iter::once(first).chain((1..self.workload.keys).map(move |_| self.popularity.draw(&mut rng)))
    }

    /// Returns the key of a pair; always the same.
    pub fn key(&self, number: u32) -> &[u8] {
        let (bytes, ends) = &*self.keys;
        let index = number as usize;
        let begin = index.checked_sub(1).map_or(0, |before| ends[before]);
        &bytes[begin as usize..ends[index] as usize]
    }

    /// Returns the length of a pair's initial value, in bytes.
    pub fn initial_value_len(&self, number: u32) -> usize {
        self.workload.mix.value_length(&mut Rng::new(number.into(), Purpose::Server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Checks a mix's share of writes, and the share of requests for the first `popular` keys.
    fn check(mix: PairMix, writes: f64, popular: u32, share: f64) {
        let pairs = Pairs::new(mix);
        let drawn: Vec<PairRequest> = (0..200_000).map(|bits| pairs.draw(bits)).collect();
        let part = |count: usize| count as f64 / drawn.len() as f64;
        let written = part(drawn.iter().filter(|request| request.write.is_some()).count());
        assert!((written - writes).abs() < 0.005, "{mix}: {written} writes");
        let asked = part(drawn.iter().filter(|request| request.number < popular).count());
        assert!((asked - share).abs() < 0.01, "{mix}: {asked} for the first {popular}");
        assert_eq!(pairs.draw(7), pairs.draw(7));
    }

    #[test]
    fn the_mixes_have_their_published_shares() {
        check(PairMix::Etc, 1.0 / 31.0, 50_000, 0.99);
        check(PairMix::Usr, 0.002, 20_000, 0.8);
        check(PairMix::Var, 0.82, 10_000, 0.9);
        check(PairMix::YcsbA, 0.5, 1, 0.078);
    }

    #[test]
    fn keys_are_valid_and_unique() {
        for mix in PairMix::ALL {
            let pairs = Pairs::new(mix);
            let mut keys = BTreeSet::new();
            let mut bytes = 0;
            for number in 0..PAIRS {
                let key = pairs.key(number).to_vec();
                assert!((KEY_MIN..=250).contains(&key.len()) && key.is_ascii());
                bytes += key.len();
                keys.insert(key);
            }
            assert_eq!(keys.len(), PAIRS as usize);
            let mean = bytes as f64 / f64::from(PAIRS);
            let expected = match mix {
                // Location + scale · (Γ(1 − shape) − 1) / shape.
                PairMix::Etc => 36.0,
                PairMix::Usr => 18.5,
                PairMix::Var => 31.0,
                PairMix::YcsbA => 23.0,
            };
            assert!((mean - expected).abs() < 0.6, "{mix}: {mean}");
        }
    }

    #[test]
    fn values_have_the_published_sizes() {
        let lengths = |mix| {
            let pairs = Pairs::new(mix);
            (0..PAIRS).map(|number| pairs.initial_value_len(number)).collect::<Vec<_>>()
        };
        assert!(lengths(PairMix::Usr).iter().all(|length| *length == 2));
        assert!(lengths(PairMix::YcsbA).iter().all(|length| *length == 1000));
        assert!(lengths(PairMix::Var).iter().all(|length| (4..=1024).contains(length)));
        let etc = lengths(PairMix::Etc);
        let small = etc.iter().filter(|length| **length < 15).count() as f64 / etc.len() as f64;
        assert!((small - ETC_SMALL.iter().sum::<f64>()).abs() < 0.01, "{small}");
        // The generalized Pareto's mean is 15 + scale / (1 − shape) = 344.
        let large: Vec<usize> = etc.into_iter().filter(|length| *length >= 15).collect();
        let mean = large.iter().sum::<usize>() as f64 / large.len() as f64;
        assert!((mean / 344.0 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn workload_names_round_trip() {
        let services = PairMix::ALL.into_iter().flat_map(|mix| [1, 24, 100].map(|keys| PairWorkload { mix, keys }));
        assert!(services.into_iter().all(|service| PairWorkload::parse(&service.to_string()) == Ok(service)));
        for wrong in
            ["kv:tao", "kv:usr:", "kv:usr:keys=", "kv:usr:keys=0", "kv:usr:keys=101", "kv:usr:keys=-1", "kv:keys=2"]
        {
            assert!(PairWorkload::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_read_of_several_keys_begins_with_the_key_of_a_single_read() {
        let pairs = Pairs::new(PairWorkload { mix: PairMix::Usr, keys: 24 });
        let mut popular = 0;
        for bits in 0..2_000 {
            let drawn: Vec<u32> = pairs.draw_read(bits).collect();
            assert_eq!((drawn.len(), drawn[0]), (24, pairs.draw(bits).number));
            assert!(drawn.iter().all(|number| *number < PAIRS));
            popular += drawn.iter().filter(|number| **number < 20_000).count();
        }
        assert!((popular as f64 / 48_000.0 - 0.8).abs() < 0.01, "{popular}");
    }
}
