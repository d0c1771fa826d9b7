//! Counters of the store, under memcached's names.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! counters {
    ($($counter:ident = $name:literal),* $(,)?) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // their names say it all, and are memcached's
        pub enum Counter { $($counter),* }

        /// All counters and the names that `stats` shows.
        pub const COUNTERS: &[(Counter, &str)] = &[$((Counter::$counter, $name)),*];
    };
}

counters! {
    CmdGet = "cmd_get",
    CmdSet = "cmd_set",
    CmdFlush = "cmd_flush",
    CmdTouch = "cmd_touch",
    CmdMeta = "cmd_meta",
    GetHits = "get_hits",
    GetMisses = "get_misses",
    GetExpired = "get_expired",
    GetFlushed = "get_flushed",
    DeleteMisses = "delete_misses",
    DeleteHits = "delete_hits",
    IncrMisses = "incr_misses",
    IncrHits = "incr_hits",
    DecrMisses = "decr_misses",
    DecrHits = "decr_hits",
    CasMisses = "cas_misses",
    CasHits = "cas_hits",
    CasBadval = "cas_badval",
    TouchHits = "touch_hits",
    TouchMisses = "touch_misses",
    StoreTooLarge = "store_too_large",
    StoreNoMemory = "store_no_memory",
    TotalItems = "total_items",
    Evictions = "evictions",
    EvictedUnfetched = "evicted_unfetched",
    Reclaimed = "reclaimed",
    ExpiredUnfetched = "expired_unfetched",
    RejectedConnections = "rejected_connections",
    SlabsMoved = "slabs_moved",
    Refused = "lock_refusals",
}

/// Number of copies of the counters; more threads share copies.
const SHARDS: usize = 16;

#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS.len()]);

/// Counters with a copy per thread, up to `SHARDS`; memcached's are per thread, too.
pub struct Stats(Box<[Shard]>);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the index of this thread's counters.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

impl Stats {
    pub(super) fn new() -> Self {
        Stats((0..SHARDS).map(|_| Shard([const { AtomicU64::new(0) }; COUNTERS.len()])).collect())
    }

    /// Counts an event.
    pub fn count(&self, counter: Counter) {
        self.0[shard()].0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0[counter as usize].load(Ordering::Relaxed)))
    }

    /// Resets all counters.
    pub fn reset(&self) {
        self.0.iter().flat_map(|shard| &shard.0).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}
