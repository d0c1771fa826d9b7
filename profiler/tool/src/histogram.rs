//! A histogram of spans with buckets of at most 3 % width: small while it holds few different values, of fixed size
//! afterwards.

/// Buckets per doubling.
const PER_OCTAVE: u64 = 32;
/// Buckets in all: up to the largest 64-bit number.
const BUCKETS: usize = (58 * PER_OCTAVE + 2 * PER_OCTAVE) as usize;
/// Slots for a few buckets, at first and at most: each bucket has one of them, by its lowest bits. With more buckets, or with two that
/// want the same slot, it becomes a table.
const FEW: [usize; 2] = [16, 128];

/// Counts values, and tells percentiles to within 1.6 %.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Counts,
    count: u64,
    total: u128,
    max: u64,
    min: u64,
}

#[derive(Clone, Debug)]
enum Counts {
    /// Bucket and count; a count of 0 is an empty slot. Most functions take much the same time whenever they are called: neighbouring
    /// buckets, which want different slots.
    Few(Vec<(u16, u64)>),
    /// Counts stop at the largest 32-bit number: a table is half as large for it.
    Table(Box<[u32; BUCKETS]>),
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::Few(Vec::new())
    }
}

impl Counts {
    /// Counts in a bucket that has no slot yet.
    #[cold]
    fn make_room(&mut self, bucket: usize, times: u64) {
        let Counts::Few(slots) = self else { return };
        let mut size = slots.len().max(FEW[0]);
        while size <= FEW[1] {
            let mut larger = vec![(0, 0); size];
            // What had slots of its own has them among more slots, too.
            for entry in slots.iter().filter(|(_, count)| *count > 0) {
                larger[usize::from(entry.0) & (size - 1)] = *entry;
            }
            let slot = &mut larger[bucket & (size - 1)];
            if slot.1 == 0 {
                *slot = (bucket as u16, times);
                *slots = larger;
                return;
            }
            size *= 2;
        }
        let mut table = Box::new([0; BUCKETS]);
        for (bucket, count) in slots.iter() {
            table[usize::from(*bucket)] += narrow(*count);
        }
        table[bucket] = narrow(times);
        *self = Counts::Table(table);
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn bucket(value: u64) -> usize {
    if value < 2 * PER_OCTAVE {
        return value as usize;
    }
    let shift = u64::from(value.ilog2()) - 5;
    (shift * PER_OCTAVE + (value >> shift)) as usize
}

/// The least value of a bucket.
fn lowest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = shift(bucket);
    (bucket - shift * PER_OCTAVE) << shift
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    lowest(bucket) + ((1 << shift(bucket as u64)) >> 1)
}

/// How many bits a bucket does not tell apart.
fn shift(bucket: u64) -> u64 {
    (bucket / PER_OCTAVE).saturating_sub(1)
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value several times.
    #[inline]
    pub fn record_many(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += times;
        self.total += u128::from(value) * u128::from(times);
        let bucket = bucket(value);
        match &mut self.counts {
            Counts::Table(table) => table[bucket] = table[bucket].saturating_add(narrow(times)),
            Counts::Few(slots) => {
                let at = bucket & slots.len().wrapping_sub(1);
                match slots.get_mut(at) {
                    Some((known, count)) if usize::from(*known) == bucket && *count > 0 => *count += times,
                    _ => self.counts.make_room(bucket, times),
                }
            }
        }
    }

    /// Adds another's values.
    pub fn add(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        let (min, max) = (other.min, other.max);
        let (least, most) = if self.count == 0 { (min, max) } else { (self.min.min(min), self.max.max(max)) };
        let total = self.total + other.total;
        other.each(|bucket, count| self.record_many(middle(bucket), count));
        (self.min, self.max, self.total) = (least, most, total);
    }

    /// From the least bucket to the greatest.
    fn each(&self, mut visit: impl FnMut(usize, u64)) {
        match &self.counts {
            Counts::Few(slots) => {
                let mut taken: Vec<_> = slots.iter().filter(|(_, count)| *count > 0).collect();
                taken.sort_unstable();
                taken.into_iter().for_each(|(bucket, count)| visit(usize::from(*bucket), *count));
            }
            Counts::Table(table) => {
                table.iter().enumerate().filter(|(_, count)| **count > 0).for_each(|(bucket, count)| {
                    visit(bucket, u64::from(*count));
                });
            }
        }
    }

    /// The value below which this share of all lies, from 0 to 100; 0 of nothing.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let (mut seen, mut found) = (0, self.max);
        self.each(|bucket, count| {
            if seen < rank && seen + count >= rank {
                found = middle(bucket).clamp(self.min, self.max);
            }
            seen += count;
        });
        if rank >= self.count { self.max } else { found }
    }

    /// The limit above or at which about this share of all lies, from 0 to 1: at least one value. Equal values stay together,
    /// so it may be more or fewer: whichever is nearer as a ratio.
    pub fn limit_of_largest(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share.clamp(0.0, 1.0)).max(1.0);
        let mut buckets = Vec::new();
        self.each(|bucket, count| buckets.push((bucket, count)));
        let (mut above, mut best) = (0, (f64::INFINITY, 0));
        for (bucket, count) in buckets.into_iter().rev() {
            above += count;
            let off = (above as f64 / wanted).ln().abs();
            if off < best.0 {
                best = (off, lowest(bucket));
            }
        }
        best.1
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn total(&self) -> u64 {
        u64::try_from(self.total).unwrap_or(u64::MAX)
    }

    /// The largest; 0 of nothing.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean; 0 of nothing.
    pub fn mean(&self) -> u64 {
        u64::try_from(self.total / u128::from(self.count.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_near(mut values in prop::collection::vec(prop_oneof![0_u64..200, any::<u64>(), 1_000_u64..1_000_000], 1..300)) {
            let mut halves = [Histogram::default(), Histogram::default()];
            values.iter().enumerate().for_each(|(index, value)| halves[index % 2].record(*value));
            let [mut all, other] = halves;
            all.add(&other);
            values.sort_unstable();
            for percent in [0.0, 1.0, 50.0, 99.0, 99.99, 100.0] {
                let rank = (percent / 100.0 * values.len() as f64).ceil().max(1.0) as usize;
                let exact = values[rank - 1] as f64;
                let found = all.percentile(percent) as f64;
                prop_assert!((found - exact).abs() <= exact * 0.033 + 1.0, "p{percent}: {found} for {exact}");
            }
            prop_assert_eq!(all.count(), values.len() as u64);
            prop_assert_eq!(all.max(), values[values.len() - 1]);
        }
    }

    #[test]
    fn equal_values_stay_together() {
        let limit = |values: &[(u64, u64)]| {
            let mut all = Histogram::default();
            values.iter().for_each(|(value, times)| all.record_many(*value, *times));
            all.limit_of_largest(0.01)
        };
        // Six of a thousand are nearer to ten than the three hundred that share the next value.
        assert!((10_001..=500_000).contains(&limit(&[(9_000, 694), (10_000, 300), (500_000, 6)])));
        // All alike: all of them.
        assert!(limit(&[(5_000, 1000)]) <= 5_000);
        assert_eq!(limit(&[]), 0);
        assert_eq!(limit(&[(1, 990), (60, 10)]), 60);
    }
}
