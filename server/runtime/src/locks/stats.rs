//! Statistics of a lock, in a fixed amount of memory: acquisitions, waits, rejections, and
//! durations. Locks of the same name and kind share their statistics: the stripes of a table are
//! one lock for a search of contended ones.

use leeward_core::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Mutex`](super::Mutex).
    Mutex,
    /// An [`RwLock`](super::RwLock), readers and writers together.
    RwLock,
    /// A [`Condvar`](super::Condvar): every wait counts as a contended acquisition.
    Condvar,
    /// A [`Semaphore`](super::Semaphore).
    Semaphore,
    /// A [`channel`](super::channel()): senders that wait for capacity.
    Channel,
    /// An [`AcquireQueue`](super::AcquireQueue) in front of a resource that this crate does not
    /// know.
    AcquireQueue,
}

impl LockKind {
    /// Name in lower case, for people and JSON.
    pub fn name(self) -> &'static str {
        match self {
            LockKind::Mutex => "mutex",
            LockKind::RwLock => "rwlock",
            LockKind::Condvar => "condvar",
            LockKind::Semaphore => "semaphore",
            LockKind::Channel => "channel",
            LockKind::AcquireQueue => "line",
        }
    }
}

/// Buckets of the histogram. Bucket `i` holds waits below 2^i ns that fit no lower bucket; the last
/// one holds all longer waits (above 9 minutes).
pub const BUCKETS: usize = 40;

/// Live counters. No decision depends on them, so accesses are relaxed.
pub(super) struct LockCounts {
    pub(super) name: &'static str,
    pub(super) kind: LockKind,
    uncontended: AtomicU64,
    contended: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    waited: AtomicU64,
    longest: AtomicU64,
    waits: [AtomicU64; BUCKETS],
}

impl LockCounts {
    pub(super) fn new(name: &'static str, kind: LockKind) -> Self {
        LockCounts {
            name,
            kind,
            uncontended: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            waits: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts `times` acquisitions without waiting.
    pub(super) fn count_uncontended(&self, times: u64) {
        self.uncontended.fetch_add(times, Ordering::Relaxed);
    }

    /// Counts an acquisition after a wait.
    pub(super) fn count_wait(&self, span: Nanos) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(span.0, Ordering::Relaxed);
        self.longest.fetch_max(span.0, Ordering::Relaxed);
        let bucket = (u64::BITS - span.0.leading_zeros()) as usize;
        self.waits[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a waiter that gave up.
    pub(super) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> LockStats {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let contended = read(&self.contended);
        LockStats {
            name: self.name,
            kind: self.kind,
            acquired: read(&self.uncontended) + contended,
            contended,
            refused: read(&self.refused),
            cancelled: read(&self.cancelled),
            waited: Nanos(read(&self.waited)),
            longest: Nanos(read(&self.longest)),
            waits: self.waits.each_ref().map(read),
        }
    }
}

/// Statistics of the locks of one name and kind since the first of them was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// The locks' name.
    pub name: &'static str,
    /// Kind of these locks.
    pub kind: LockKind,
    /// Acquisitions, with or without waiting. Those without are added in batches, so up to 63 of
    /// each lock may be missing.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Acquisitions rejected because the request's budget would not have lasted.
    pub refused: u64,
    /// Acquisitions given up while waiting, by dropping the future.
    pub cancelled: u64,
    /// Sum of all waits.
    pub waited: Nanos,
    /// The longest wait.
    pub longest: Nanos,
    /// Histogram of the waits, by powers of two: see [`BUCKETS`].
    pub waits: [u64; BUCKETS],
}

impl LockStats {
    /// Statistics since `earlier`, of the same locks. The longest wait stays that of all times,
    /// since that of a part is unknown.
    pub fn since(&self, earlier: &LockStats) -> LockStats {
        LockStats {
            name: self.name,
            kind: self.kind,
            acquired: self.acquired.saturating_sub(earlier.acquired),
            contended: self.contended.saturating_sub(earlier.contended),
            refused: self.refused.saturating_sub(earlier.refused),
            cancelled: self.cancelled.saturating_sub(earlier.cancelled),
            waited: self.waited.saturating_sub(earlier.waited),
            longest: self.longest,
            waits: std::array::from_fn(|bucket| self.waits[bucket].saturating_sub(earlier.waits[bucket])),
        }
    }

    /// Quantile of the wait over all acquisitions, including those without a wait; `share` is from
    /// 0 to 1. As exact as [`quantile`](Self::quantile).
    pub fn quantile_of_all(&self, share: f64) -> Nanos {
        let at_once = self.acquired.saturating_sub(self.contended);
        let rank = (self.acquired as f64 * share).ceil();
        match rank - at_once as f64 {
            waited if waited > 0.0 && self.contended > 0 => self.quantile(waited / self.contended as f64),
            _ => Nanos::ZERO,
        }
    }

    /// Quantile of the waits; `share` is from 0 to 1. Returns the upper end of a bucket, so up to
    /// twice too much; zero without waiters.
    pub fn quantile(&self, share: f64) -> Nanos {
        let all: u64 = self.waits.iter().sum();
        if all == 0 {
            return Nanos::ZERO;
        }
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all);
        let mut seen = 0;
        for (bucket, count) in self.waits.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(1 << bucket).min(self.longest);
            }
        }
        self.longest
    }
}

/// A lock's own count of acquisitions without a wait. It lies beside the lock's state, so that
/// counting touches no other memory. The lock adds it to the shared counts now and then.
pub(super) struct UncontendedCount(AtomicU64);

/// Size of a batch: a power of two.
const BATCH: u64 = 64;

impl UncontendedCount {
    pub(super) const fn new() -> Self {
        UncontendedCount(AtomicU64::new(0))
    }

    /// Counts one acquisition by the only holder of the lock, with a plain addition.
    #[inline]
    pub(super) fn add_exclusive(&self, counts: &LockCounts) {
        let count = self.0.load(Ordering::Relaxed) + 1;
        self.0.store(count, Ordering::Relaxed);
        Self::report(count, counts);
    }

    /// Counts one acquisition by one of several holders.
    #[inline]
    pub(super) fn add(&self, counts: &LockCounts) {
        Self::report(self.0.fetch_add(1, Ordering::Relaxed) + 1, counts);
    }

    /// Reports at 1, 2, 4, … 64, and then every 64, so that rarely used locks show too.
    #[inline]
    fn report(count: u64, counts: &LockCounts) {
        if count.is_multiple_of(BATCH) {
            counts.count_uncontended(if count == BATCH { BATCH / 2 } else { BATCH });
        } else if count < BATCH && count.is_power_of_two() {
            counts.count_uncontended(count - count / 2);
        }
    }

    /// Acquisitions that were not added to the shared counts yet.
    pub(super) fn unreported(&self) -> u64 {
        let count = self.0.load(Ordering::Relaxed);
        let reported = match count {
            0 => 0,
            1..BATCH => 1 << count.ilog2(),
            _ => count / BATCH * BATCH,
        };
        count - reported
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn batched_counts_add_up() {
        let counts = LockCounts::new("tested", LockKind::Mutex);
        let own = UncontendedCount::new();
        for n in 1..=1_000 {
            if n % 2 == 0 {
                own.add(&counts)
            } else {
                own.add_exclusive(&counts)
            }
            assert_eq!(counts.read().acquired + own.unreported(), n);
            assert!(own.unreported() < BATCH);
        }
    }

    #[test]
    fn quantile_covers_only_acquisitions_that_waited() {
        let counts = LockCounts::new("tested", LockKind::Mutex);
        counts.count_uncontended(1_000);
        assert_eq!(counts.read().quantile(0.99), Nanos::ZERO);
        for span in [0, 1, 5, 1_000, 1_000_000] {
            counts.count_wait(Nanos(span));
        }
        let stats = counts.read();
        assert_eq!((stats.acquired, stats.contended, stats.waits.iter().sum::<u64>()), (1_005, 5, 5));
        assert_eq!((stats.waited, stats.longest), (Nanos(1_001_006), Nanos(1_000_000)));
        assert_eq!(stats.quantile(0.5), Nanos(8));
        assert_eq!(stats.quantile(1.0), Nanos(1_000_000));
        counts.count_wait(Nanos::MAX);
        assert_eq!(counts.read().waits[BUCKETS - 1], 1);
    }

    #[test]
    fn quantile_of_all_includes_uncontended_acquisitions() {
        let counts = LockCounts::new("tested", LockKind::Mutex);
        assert_eq!(counts.read().quantile_of_all(0.99), Nanos::ZERO);
        counts.count_uncontended(98);
        counts.count_wait(Nanos(1_000));
        counts.count_wait(Nanos(100_000));
        let stats = counts.read();
        assert_eq!([0.5, 0.98, 0.99, 1.0].map(|share| stats.quantile_of_all(share).0), [0, 0, 1_024, 100_000]);
    }

    #[test]
    fn since_gives_the_difference_of_two_snapshots() {
        let counts = LockCounts::new("tested", LockKind::Mutex);
        counts.count_uncontended(10);
        counts.count_wait(Nanos(1_000));
        counts.count_refusal();
        let earlier = counts.read();
        counts.count_uncontended(5);
        counts.count_wait(Nanos(50));
        counts.count_refusal();
        counts.count_cancelled();
        let since = counts.read().since(&earlier);
        assert_eq!((since.acquired, since.contended, since.refused, since.cancelled), (6, 1, 1, 1));
        assert_eq!((since.waited, since.quantile(0.5)), (Nanos(50), Nanos(64)));
        // A lock that did not exist before has nothing to subtract; one that was reset has nothing
        // left.
        assert_eq!(earlier.since(&counts.read()).acquired, 0);
    }
}
