//! Connections to a leaf, as the shards of a tier have seen them last. A shard that asks nothing notices nothing, so the first loss that any of
//! them notices ends what the others have told; they tell again when they look and their own connection is there.

use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that are there, and a number that each loss changes. One word, so that both are of one moment.
#[derive(Debug, Default)]
pub(super) struct Presence(AtomicU64);

const CONNECTIONS: u64 = u32::MAX as u64;

fn age_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Presence {
    /// Number of losses so far: what was told at another number holds no more.
    pub(super) fn age(&self) -> u32 {
        age_of(self.0.load(Ordering::Relaxed))
    }

    /// Connections that are there.
    pub(super) fn connections(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & CONNECTIONS
    }

    /// A shard's connection is there. The age at which that was told.
    pub(super) fn came(&self) -> u32 {
        age_of(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection that was told at an age is lost: nobody knows of the others before they look.
    pub(super) fn lost(&self, told: u32) {
        self.change(told, |_| u64::from(told.wrapping_add(1)) << 32);
    }

    /// A shard goes, and with it its connection, which was told at an age.
    pub(super) fn left(&self, told: u32) {
        self.change(told, |word| if word & CONNECTIONS > 0 { word - 1 } else { word });
    }

    fn change(&self, told: u32, to: impl Fn(u64) -> u64) {
        let next = |word: u64| (age_of(word) == told).then(|| to(word));
        // Of another age: somebody else has noticed before.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_notices_a_loss_tells_for_all() {
        let leaf = Presence::default();
        let told = [leaf.came(), leaf.came(), leaf.came()];
        assert_eq!((leaf.connections(), told), (3, [0; 3]));
        leaf.lost(told[1]);
        assert_eq!((leaf.connections(), leaf.age()), (0, 1));
        leaf.lost(told[0]);
        leaf.left(told[2]);
        assert_eq!((leaf.connections(), leaf.age()), (0, 1), "told already");
        let again = leaf.came();
        assert_eq!((leaf.connections(), again), (1, 1));
        leaf.left(again);
        assert_eq!((leaf.connections(), leaf.age()), (0, 1), "no loss");
    }
}
