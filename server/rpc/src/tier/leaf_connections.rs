//! Connections to a leaf, as the shards of a tier have seen them last. A shard that asks nothing notices nothing, so the first loss that any of
//! them notices ends what the others have told; they tell again when they look and their own connection is there.

use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that are there, and a number that each loss changes. One word, so that both are of one moment.
#[derive(Debug, Default)]
pub(super) struct LeafConnections(AtomicU64);

const CONNECTIONS: u64 = u32::MAX as u64;

fn epoch_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl LeafConnections {
    /// Number of losses so far: what was told at another number holds no more.
    pub(super) fn epoch(&self) -> u32 {
        epoch_of(self.0.load(Ordering::Relaxed))
    }

    /// Connections that are there.
    pub(super) fn connections(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & CONNECTIONS
    }

    /// A shard's connection is there. The age at which that was told.
    pub(super) fn add(&self) -> u32 {
        epoch_of(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection that was told at an age is lost: nobody knows of the others before they look.
    pub(super) fn invalidate(&self, told: u32) {
        self.change(told, |_| u64::from(told.wrapping_add(1)) << 32);
    }

    /// A shard goes, and with it its connection, which was told at an age.
    pub(super) fn remove(&self, told: u32) {
        self.change(told, |word| if word & CONNECTIONS > 0 { word - 1 } else { word });
    }

    fn change(&self, told: u32, to: impl Fn(u64) -> u64) {
        let next = |word: u64| (epoch_of(word) == told).then(|| to(word));
        // Of another age: somebody else has noticed before.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_notices_a_loss_tells_for_all() {
        let leaf = LeafConnections::default();
        let told = [leaf.add(), leaf.add(), leaf.add()];
        assert_eq!((leaf.connections(), told), (3, [0; 3]));
        leaf.invalidate(told[1]);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1));
        leaf.invalidate(told[0]);
        leaf.remove(told[2]);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1), "told already");
        let again = leaf.add();
        assert_eq!((leaf.connections(), again), (1, 1));
        leaf.remove(again);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1), "no loss");
    }
}
