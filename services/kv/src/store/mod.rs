//! The store: pairs in slab memory under memcached's locks. Time is an argument; nothing here uses
//! sockets.
//!
//! The store has three kinds of locks, taken in this order: an item lock (a stripe of the hash
//! table), a class's LRU lock, the allocator's lock. Eviction begins at an LRU list and only tries
//! the item lock of each candidate.
//!
//! Until its first change an operation takes locks with `lock_within_budget`: a rejected request
//! has changed nothing that its key shows. After the first change, and wherever memory is freed,
//! the thread must wait.
//!
//! - `config`: sizes. `memory`: pages and chunks. `item`: a chunk's contents. `hash`, `table`:
//!   lookup.
//! - `slabs`: the allocator. `lru`: the order of eviction. `evict`: freeing memory.
//! - `read`, `write`, `delta`: the operations. [`stats`]: counters.
//! - `locks`: the type of the locks.

mod config;
mod delta;
mod evict;
mod hash;
mod item;
mod locks;
mod lru;
mod memory;
pub(crate) mod read;
mod slabs;
pub mod stats;
mod table;
mod write;

pub use config::{ConfigError, KEY_MAX, PAGE, StoreConfig};
pub use delta::{Delta, DeltaOutcome};
pub use leeward_runtime::locks::Congested;
pub use read::ItemRef;
pub use slabs::ClassUsage;
pub use write::{Mode, Write, WriteOutcome};

use item::Item;
use locks::{Lock, MutexGuard};
use lru::Lru;
use memory::{Chunk, Memory};
use slabs::Slabs;
use stats::{Counter, Stats};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use table::Stripe;

/// Context of one request to the store.
///
/// The running request's budget limits its waits for locks ([`leeward_runtime::budget`]); outside
/// of a request nothing is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// Seconds since 1970.
    pub now: u32,
    /// Limit of the answer's length in bytes, without the text around its last value.
    ///
    /// A value that would exceed the limit is not read.
    pub reply_max: usize,
}

impl RequestContext {
    /// Creates a context at `now`, with an answer of any length.
    pub const fn at(now: u32) -> Self {
        RequestContext { now, reply_max: usize::MAX }
    }
}

/// Reason why an item gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationError {
    Refused(Congested),
    TooLarge,
    /// No free chunk, and nothing to evict.
    OutOfMemory,
}

impl From<Congested> for AllocationError {
    fn from(congested: Congested) -> Self {
        AllocationError::Refused(congested)
    }
}

/// Pairs in memory. Shared by all threads.
///
/// ```
/// use leeward_kv::store::{RequestContext, Store, StoreConfig, Write, WriteOutcome};
///
/// let store = Store::new(&StoreConfig::default())?;
/// let context = RequestContext::at(1_700_000_000);
/// let outcome = store.write(b"greeting", b"hello", &Write::default(), &context).unwrap();
/// assert!(matches!(outcome, WriteOutcome::Stored { .. }));
/// let mut value = Vec::new();
/// store.read(b"greeting", &context, |found| found.unwrap().append_value(&mut value)).unwrap();
/// assert_eq!(value, b"hello");
/// # Ok::<(), leeward_kv::store::ConfigError>(())
/// ```
pub struct Store {
    config: StoreConfig,
    chunk_sizes: Box<[usize]>,
    memory: Memory,
    stripes: Box<[Lock<Stripe>]>,
    lrus: Box<[Lock<Lru>]>,
    slabs: Lock<Slabs>,
    /// Held while a page moves between classes.
    moving: Lock<()>,
    last_cas: AtomicU64,
    /// Items with this CAS id or a lower one are flushed.
    flushed_cas: AtomicU64,
    /// Once this second has begun, items stored up to its end are flushed; 0: never.
    flush_at: AtomicU32,
    stats: Stats,
}

/// Contents of a store. Under concurrent use the parts are from slightly different times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Items in the hash table.
    pub items: usize,
    /// Items stored and evicted so far, by class.
    pub class_totals: Vec<(u64, u64)>,
    /// Buckets of the hash table.
    pub buckets: usize,
    /// Items in each class's LRU list.
    pub lru_lengths: Vec<usize>,
    /// Use of each class, from the allocator.
    pub class_usage: Vec<ClassUsage>,
    /// Pages in use.
    pub pages: usize,
}

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(config: &StoreConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let (chunk_sizes, lock_power) = (config.chunk_sizes(), config.lock_power());
        let bucket_power = config.hash_power - lock_power;
        let stripe = |_| Lock::new("kv item", Stripe::new(bucket_power, lock_power));
        Ok(Store {
            memory: Memory::new(config.pages(), &chunk_sizes),
            stripes: (0..1 << lock_power).map(stripe).collect(),
            lrus: chunk_sizes.iter().map(|_| Lock::new("kv lru", Lru::new())).collect(),
            slabs: Lock::new("kv slabs", Slabs::new(config.pages(), &chunk_sizes)),
            moving: Lock::new("kv page", ()),
            last_cas: AtomicU64::new(0),
            flushed_cas: AtomicU64::new(0),
            flush_at: AtomicU32::new(0),
            stats: Stats::new(),
            chunk_sizes: chunk_sizes.into(),
            config: config.clone(),
        })
    }

    /// Returns the store's settings.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Returns the counters of all threads.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the contents of the store. Takes every lock once: for statistics and tests.
    pub fn usage(&self) -> Usage {
        let (mut items, mut buckets) = (0, 0);
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            items += stripe.len();
            buckets += stripe.buckets();
        }
        let (listed, turnover) =
            self.lrus.iter().map(|lru| lru.lock()).map(|lru| (lru.len(), (lru.stored, lru.evicted))).unzip();
        let slabs = self.slabs.lock();
        Usage {
            items,
            buckets,
            lru_lengths: listed,
            class_totals: turnover,
            class_usage: slabs.usage(),
            pages: slabs.pages(),
        }
    }

    /// Returns the class for an item's size, from 1 as in memcached; `None` if the item is too
    /// large.
    pub(crate) fn class_number(&self, key: usize, value: usize) -> Option<usize> {
        self.class(item::size(key, value)).map(|class| class + 1)
    }

    /// Flushes all items stored before this call or, with a later second `at`, before that second.
    ///
    /// As in memcached, the items disappear when the second before `at` begins: a delay of one
    /// second is not a delay.
    pub fn flush(&self, at: Option<u32>) {
        // As in memcached, a flush has its own CAS id: every item's id is lower or higher.
        let cas = self.next_cas();
        match at {
            None => {
                self.flushed_cas.fetch_max(cas, Ordering::SeqCst);
                self.flush_at.store(0, Ordering::SeqCst);
            }
            Some(at) => self.flush_at.store(at.saturating_sub(1), Ordering::SeqCst),
        }
        self.stats.count(Counter::CmdFlush);
    }

    fn hash(&self, key: &[u8]) -> u32 {
        hash::hash(self.config.seed, key)
    }

    fn stripe(&self, hash: u32) -> &Lock<Stripe> {
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    /// Waits for a lock unless the wait would cost more than the budget has. Counts every
    /// rejection.
    fn lock_within_budget<'a, T>(&self, lock: &'a Lock<T>) -> Result<MutexGuard<'a, T>, Congested> {
        lock.lock_unless_congested().inspect_err(|_| self.stats.count(Counter::Refused))
    }

    fn item(&self, chunk: Chunk) -> Item<'_> {
        Item::new(&self.memory, chunk)
    }

    fn class(&self, size: usize) -> Option<usize> {
        (size <= PAGE).then(|| self.chunk_sizes.partition_point(|chunk| *chunk < size))
    }

    fn next_cas(&self) -> u64 {
        self.last_cas.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the reason why an item must not be served, if there is one.
    fn miss_reason(&self, item: Item<'_>, now: u32) -> Option<Counter> {
        let expires = item.expires();
        if expires != 0 && expires <= now {
            return Some(Counter::GetExpired);
        }
        let flush_at = self.flush_at.load(Ordering::Relaxed);
        let is_flushed = item.cas() <= self.flushed_cas.load(Ordering::Relaxed)
            || (flush_at != 0 && flush_at <= now && item.stored() <= flush_at);
        is_flushed.then_some(Counter::GetFlushed)
    }

    /// Finds the item of `key`, if it may be served; removes it otherwise.
    fn find(&self, stripe: &mut Stripe, hash: u32, key: &[u8], now: u32) -> Result<Chunk, Option<Counter>> {
        let chunk = stripe.find(&self.memory, hash, key).ok_or(None)?;
        match self.miss_reason(self.item(chunk), now) {
            None => Ok(chunk),
            Some(reason) => {
                self.unlink(stripe, chunk);
                self.free(chunk);
                Err(Some(reason))
            }
        }
    }

    /// Removes an item from table and list; waits without limit.
    fn unlink(&self, stripe: &mut Stripe, chunk: Chunk) {
        let mut lru = self.lrus[self.memory.class(chunk)].lock();
        lru.remove(&self.memory, chunk);
        drop(lru);
        stripe.remove(&self.memory, chunk);
    }

    /// Returns a chunk that no other thread knows to the allocator; waits without limit.
    fn free(&self, chunk: Chunk) {
        self.slabs.lock().free(&self.memory, chunk);
    }
}

/// Converts a client's `exptime` to the second of expiry (memcached's protocol).
///
/// - 0: never.
/// - Negative: at once.
/// - Up to thirty days: relative to `now`.
/// - More: seconds since 1970.
pub fn expires(exptime: i64, now: u32) -> u32 {
    const MONTH: i64 = 60 * 60 * 24 * 30;
    match exptime {
        0 => 0,
        ..0 => 1,
        1..=MONTH => u32::try_from(i64::from(now) + exptime).unwrap_or(u32::MAX),
        _ => u32::try_from(exptime).unwrap_or(u32::MAX),
    }
}
