//! Sums of time per key, for one request: a list while there are few keys, which is nearly always.
//!
//! A hash table per request would cost more than the rest of the analysis.

use std::hash::Hash;

use crate::hash::Map;

/// Greatest length at which the list is searched linearly.
const FEW: usize = 16;

/// Nanoseconds per key, in the order of the keys' first occurrence.
#[derive(Clone, Debug)]
pub struct Sums<K> {
    list: Vec<(K, u64)>,
    /// Index of each key in the list, once there are many.
    indices: Map<K, usize>,
}

impl<K> Default for Sums<K> {
    fn default() -> Sums<K> {
        Sums { list: Vec::new(), indices: Map::default() }
    }
}

impl<K: Copy + Eq + Hash> Sums<K> {
    /// Adds to the sum of a key.
    pub fn add(&mut self, key: K, nanos: u64) {
        let known = if self.list.len() <= FEW {
            self.list.iter().position(|(other, _)| *other == key)
        } else {
            self.indices.get(&key).copied()
        };
        match known {
            Some(index) => self.list[index].1 = self.list[index].1.saturating_add(nanos),
            None => self.append(key, nanos),
        }
    }

    fn append(&mut self, key: K, nanos: u64) {
        self.list.push((key, nanos));
        if self.list.len() > FEW + 1 {
            self.indices.insert(key, self.list.len() - 1);
        } else if self.list.len() == FEW + 1 {
            self.indices = self.list.iter().enumerate().map(|(index, (key, _))| (*key, index)).collect();
        }
    }

    /// Iterates over the sums.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.list.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sums_equal_those_of_a_map(keys in prop::collection::vec((0_u32..40, 0_u64..9), 0..200)) {
            let (mut sums, mut map) = (Sums::default(), BTreeMap::new());
            for (key, nanos) in keys {
                sums.add(key, nanos);
                *map.entry(key).or_insert(0) += nanos;
            }
            let added: BTreeMap<u32, u64> = sums.iter().collect();
            prop_assert_eq!(sums.iter().count(), map.len());
            prop_assert_eq!(added, map);
        }
    }
}
