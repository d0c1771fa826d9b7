//! The store: pairs in slab memory under memcached's locks. Time is an argument; nothing here knows of sockets.
//!
//! Three kinds of locks, taken in this order: an item lock (a stripe of the hash table), a class's LRU lock, the allocator's
//! lock. Eviction begins at an LRU list and only tries the item lock of what it finds there. Until the first change each
//! is taken with `may_lock`: a refused request has changed nothing that its key shows. From then on, and
//! wherever memory is freed, waiting is a duty.
//!
//! - `config`: sizes. `memory`: pages and chunks. `item`: what is in a chunk. `hash`, `table`: finding it.
//! - `slabs`: the allocator. `lru`: the order of eviction. `evict`: making room.
//! - `read`, `write`, `delta`: the operations. [`stats`]: what has been counted.
//! - `locks`: what locks are made of.

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

/// A request as the store sees it. How long it may still wait for locks is the running request's budget
/// ([`leeward_runtime::budget`]); outside of one nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// Seconds since 1970.
    pub now: u32,
    /// The longest answer that may be made, in bytes, but for the words around its last value: a value that would make it longer is not read.
    pub reply_max: usize,
}

impl RequestContext {
    /// At `now`, with an answer of any length.
    pub const fn at(now: u32) -> Self {
        RequestContext { now, reply_max: usize::MAX }
    }
}

/// Why an item has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationError {
    Refused(Congested),
    TooLarge,
    /// Nothing is free and nothing can be evicted.
    OutOfMemory,
}

impl From<Congested> for AllocationError {
    fn from(refused: Congested) -> Self {
        AllocationError::Refused(refused)
    }
}

/// Pairs in memory. Shared by all threads.
///
/// ```
/// use leeward_kv::store::{Store, StoreConfig, Visit, Write, WriteOutcome};
///
/// let store = Store::new(&StoreConfig::default())?;
/// let visit = Visit::at(1_700_000_000);
/// let outcome = store.write(b"greeting", b"hello", &Write::default(), &visit).unwrap();
/// assert!(matches!(outcome, WriteOutcome::Stored { .. }));
/// let mut value = Vec::new();
/// store.read(b"greeting", &visit, |found| found.unwrap().append_value(&mut value)).unwrap();
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
    /// Held while a page changes hands.
    moving: Lock<()>,
    last_cas: AtomicU64,
    /// Items with this CAS id or a lower one are flushed.
    flushed_cas: AtomicU64,
    /// Once this second has begun, items stored up to its end are flushed; 0: never.
    flush_at: AtomicU32,
    stats: Stats,
}

/// Contents of a store at one moment. While others use it the parts are of slightly different moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Items in the hash table.
    pub items: usize,
    /// Of each class: items stored and evicted so far.
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
    /// An empty store.
    ///
    /// # Errors
    /// Settings that can't be.
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

    /// The settings that it was made with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Counters of all threads.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Contents of the store. Takes every lock once: for statistics and tests.
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

    /// The class of an item's size, from 1 as memcached counts, if it is not too large.
    pub(crate) fn class_number(&self, key: usize, value: usize) -> Option<usize> {
        self.class(item::size(key, value)).map(|class| class + 1)
    }

    /// Forgets all items that are stored before this call, or, `at` a later second, those that are stored before that.
    /// As in memcached these are gone when the second before it begins: of a delay of one second nothing is left.
    pub fn flush(&self, at: Option<u32>) {
        // A flush has a CAS id of its own, as with memcached: items have lower ones or higher ones.
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

    /// Waits for a lock unless that would cost more than the budget has. Every refusal is counted here.
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

    /// Why an item may no longer be served, if it may not.
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

    /// The item of `key` if it may be served. One that may not is removed on the way.
    fn find(&self, stripe: &mut Stripe, hash: u32, key: &[u8], now: u32) -> Result<Chunk, Option<Counter>> {
        let chunk = stripe.find(&self.memory, hash, key).ok_or(None)?;
        match self.miss_reason(self.item(chunk), now) {
            None => Ok(chunk),
            Some(fate) => {
                self.unlink(stripe, chunk);
                self.free(chunk);
                Err(Some(fate))
            }
        }
    }

    /// Takes an item out of table and list, whatever that takes.
    fn unlink(&self, stripe: &mut Stripe, chunk: Chunk) {
        let mut lru = self.lrus[self.memory.class(chunk)].lock();
        lru.remove(&self.memory, chunk);
        drop(lru);
        stripe.remove(&self.memory, chunk);
    }

    /// Gives a chunk that no other thread knows of back to the allocator, however long that takes.
    fn free(&self, chunk: Chunk) {
        self.slabs.lock().free(&self.memory, chunk);
    }
}

/// The second in which something expires that a client writes as `exptime`: 0 is never, negative at once, up to thirty
/// days from now on, more than that since 1970 (memcached's protocol).
pub fn expires(exptime: i64, now: u32) -> u32 {
    const MONTH: i64 = 60 * 60 * 24 * 30;
    match exptime {
        0 => 0,
        ..0 => 1,
        1..=MONTH => u32::try_from(i64::from(now) + exptime).unwrap_or(u32::MAX),
        _ => u32::try_from(exptime).unwrap_or(u32::MAX),
    }
}
