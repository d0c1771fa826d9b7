//! Connections to one leaf, as the shards of a tier saw them last.
//!
//! A shard that sends nothing notices no loss. So the first loss that any shard notices invalidates
//! all other reports. A shard reports again when it polls, its own connection is open, and the leaf
//! has sent something there.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of open connections, and an epoch that each loss advances.
///
/// Both share one word, so a reader gets a consistent pair.
#[derive(Debug, Default)]
pub(super) struct LeafConnections(AtomicU64);

const CONNECTIONS: u64 = u32::MAX as u64;

fn epoch_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl LeafConnections {
    /// Number of losses so far; a report from another epoch no longer counts.
    pub(super) fn epoch(&self) -> u32 {
        epoch_of(self.0.load(Ordering::Relaxed))
    }

    /// Number of open connections.
    pub(super) fn connections(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & CONNECTIONS
    }

    /// Adds a shard's open connection and returns the epoch of the report.
    pub(super) fn add(&self) -> u32 {
        epoch_of(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// Records the loss of a connection reported in epoch `reported`.
    ///
    /// All other reports of that epoch become invalid until their shards poll again.
    pub(super) fn invalidate(&self, reported: u32) {
        self.change(reported, |_| u64::from(reported.wrapping_add(1)) << 32);
    }

    /// Removes the connection of a shard that ends, reported in epoch `reported`.
    pub(super) fn remove(&self, reported: u32) {
        self.change(reported, |word| if word & CONNECTIONS > 0 { word - 1 } else { word });
    }

    fn change(&self, reported: u32, to: impl Fn(u64) -> u64) {
        let next = |word: u64| (epoch_of(word) == reported).then(|| to(word));
        // A different epoch means that another shard has noticed the loss before.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_several_connections_is_counted_once() {
        let leaf = LeafConnections::default();
        let epochs = [leaf.add(), leaf.add(), leaf.add()];
        assert_eq!((leaf.connections(), epochs), (3, [0; 3]));
        leaf.invalidate(epochs[1]);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1));
        leaf.invalidate(epochs[0]);
        leaf.remove(epochs[2]);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1), "told already");
        let again = leaf.add();
        assert_eq!((leaf.connections(), again), (1, 1));
        leaf.remove(again);
        assert_eq!((leaf.connections(), leaf.epoch()), (0, 1), "no loss");
    }
}
