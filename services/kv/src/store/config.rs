//! Size of the store and division of its memory.

/// Size of a page in bytes, which is also the largest item. Classes get memory in pages.
pub const PAGE: usize = 1 << 20;
/// Length of the longest key in bytes, as in memcached.
pub const KEY_MAX: usize = 250;
/// Greatest number of pages that chunk numbers can address.
const PAGES_MAX: usize = 1 << 18;

/// A store's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// Memory for items, in bytes; rounded down to whole pages.
    ///
    /// It is allocated on demand and never exceeded. The hash table comes on top: 4 bytes per
    /// bucket.
    pub memory: usize,
    /// Size of the smallest chunk in bytes, header included; memcached's default.
    pub smallest_chunk: usize,
    /// Ratio of the chunk sizes of successive classes.
    pub factor: f64,
    /// The hash table begins with 2^`hash_power` buckets and grows with its items.
    pub hash_power: u8,
    /// Threads that use the store; determines the number of item locks.
    pub threads: usize,
    /// Mixed into the hash of keys, so that a client can't choose colliding keys.
    pub seed: u64,
}

impl Default for StoreConfig {
    /// memcached's defaults: 64 MiB, chunks from 96 bytes by a factor of 1.25, hash power 16; one
    /// thread, no seed.
    fn default() -> Self {
        StoreConfig { memory: 64 << 20, smallest_chunk: 96, factor: 1.25, hash_power: 16, threads: 1, seed: 0 }
    }
}

/// Invalid settings.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(super) &'static str);

impl StoreConfig {
    /// Checks that a store can be created with these settings.
    ///
    /// # Errors
    /// The reason why it can't.
    pub fn check(&self) -> Result<(), ConfigError> {
        let reject_if = |when: bool, why| if when { Err(ConfigError(why)) } else { Ok(()) };
        reject_if(self.memory < PAGE, "memory of less than 1 MiB holds no page")?;
        reject_if(self.memory / PAGE > PAGES_MAX, "memory of more than 256 GiB")?;
        reject_if(!(64..=PAGE / 2).contains(&self.smallest_chunk), "the smallest chunk has 64 bytes to 512 KiB")?;
        reject_if(!(1.05..=4.0).contains(&self.factor), "the growth factor lies between 1.05 and 4")?;
        reject_if(!(10..=28).contains(&self.hash_power), "the hash power lies between 10 and 28")
    }

    pub(super) fn pages(&self) -> usize {
        self.memory / PAGE
    }

    /// Binary logarithm of the number of item locks, by the number of threads: memcached's table.
    pub(super) fn lock_power(&self) -> u8 {
        let power = match self.threads {
            0..3 => 10,
            3 => 11,
            4 => 12,
            5..=10 => 13,
            11..=20 => 14,
            _ => 15,
        };
        // Each bucket belongs to one lock.
        power.min(self.hash_power)
    }

    /// Returns the chunk sizes of the classes, in bytes: growing by the factor, whole words, the
    /// last one a page.
    pub(super) fn chunk_sizes(&self) -> Vec<usize> {
        let mut sizes = Vec::new();
        let mut size = self.smallest_chunk.next_multiple_of(8);
        // A chunk that fits into a page only once is as good as a page.
        while size <= PAGE / 2 && sizes.len() < 254 {
            sizes.push(size);
            size = ((size as f64 * self.factor) as usize).max(size + 8).next_multiple_of(8);
        }
        sizes.push(PAGE);
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_up_to_a_page() {
        let sizes = StoreConfig::default().chunk_sizes();
        assert_eq!(sizes[..4], [96, 120, 152, 192]);
        assert_eq!(*sizes.last().unwrap(), PAGE);
        assert!(sizes.is_sorted() && sizes.iter().all(|size| size % 8 == 0));
        let flat = StoreConfig { smallest_chunk: 64, factor: 1.05, ..StoreConfig::default() };
        assert!(flat.chunk_sizes().len() <= 255);
    }

    #[test]
    fn impossible_settings_are_rejected() {
        let base = StoreConfig::default();
        assert!(base.check().is_ok());
        let wrong = [
            StoreConfig { memory: PAGE - 1, ..base.clone() },
            StoreConfig { memory: usize::MAX, ..base.clone() },
            StoreConfig { smallest_chunk: 1, ..base.clone() },
            StoreConfig { factor: f64::NAN, ..base.clone() },
            StoreConfig { hash_power: 64, ..base.clone() },
        ];
        assert!(wrong.iter().all(|config| config.check().is_err()));
    }
}
