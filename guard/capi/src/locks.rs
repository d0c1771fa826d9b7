//! Locks that know their holders, so that a wrong release is an error. Does not contain waiting, or
//! pointers of C.

use crate::status::Failure;
use crate::thread;
use leeward_runtime::locks::{NAMES, OTHERS, RawLock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Longest name of a lock, in characters.
const NAME_MAX: usize = 64;

/// Kind of a lock, as C structures hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    RwLock,
    /// With this many permits.
    Semaphore(u32),
}

/// Willingness of a caller to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    Always,
    /// As long as the running request's budget lasts.
    WithinBudget,
}

/// A lock.
#[derive(Debug)]
pub(crate) struct TrackedLock {
    raw: RawLock,
    /// Thread that holds all permits; 0: none.
    owner: AtomicU64,
    /// Holders of one permit each.
    holders: AtomicU64,
}

impl TrackedLock {
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        let name = interned(name);
        let raw = match kind {
            Kind::Mutex => RawLock::mutex(name),
            Kind::RwLock => RawLock::rwlock(name),
            Kind::Semaphore(permits) => RawLock::semaphore(name, permits),
        };
        TrackedLock { raw, owner: AtomicU64::new(0), holders: AtomicU64::new(0) }
    }

    #[inline]
    fn acquire(&self, count: u64, wait: Wait) -> Result<(), Failure> {
        match wait {
            Wait::Never => self.raw.try_acquire(count).then_some(()).ok_or(Failure::Busy),
            Wait::Always => {
                self.raw.acquire(count);
                Ok(())
            }
            Wait::WithinBudget => self.raw.acquire_unless_congested(count).map_err(|_| Failure::Congested),
        }
    }

    /// Takes all permits, as one thread does with a mutex, and a writer.
    #[inline]
    pub(crate) fn lock(&self, wait: Wait) -> Result<(), Failure> {
        let me = thread::number();
        // Only this thread writes its own number, so a stale value is another's.
        if self.owner.load(Ordering::Relaxed) == me {
            return Err(if wait == Wait::Never { Failure::Busy } else { Failure::Deadlock });
        }
        self.acquire(self.raw.all(), wait)?;
        self.owner.store(me, Ordering::Relaxed);
        Ok(())
    }

    /// Returns all permits. Only the thread that took them may.
    #[inline]
    pub(crate) fn unlock(&self) -> Result<(), Failure> {
        if self.owner.load(Ordering::Relaxed) != thread::number() {
            return Err(Failure::State);
        }
        self.owner.store(0, Ordering::Relaxed);
        self.raw.release(self.raw.all());
        Ok(())
    }

    /// Takes one of several permits.
    #[inline]
    pub(crate) fn share(&self, wait: Wait) -> Result<(), Failure> {
        if self.owner.load(Ordering::Relaxed) == thread::number() {
            return Err(if wait == Wait::Never { Failure::Busy } else { Failure::Deadlock });
        }
        self.acquire(1, wait)?;
        self.holders.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns one permit; any thread may, as long as one is out.
    #[inline]
    pub(crate) fn unshare(&self) -> Result<(), Failure> {
        let less = |holders: u64| holders.checked_sub(1);
        self.holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| Failure::State)?;
        self.raw.release(1);
        Ok(())
    }

    /// Whether a thread holds a permit.
    pub(crate) fn is_held(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0 || self.holders.load(Ordering::Relaxed) != 0
    }

    /// Whether the calling thread holds all permits.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread::number()
    }

    /// Wait of the oldest waiter, in nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.raw.delay().0
    }
}

/// The name for the process's life. A program that invents names gets [`OTHERS`] in the end.
fn interned(name: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let name: String = name.chars().filter(|of| !of.is_control()).take(NAME_MAX).collect();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get(name.as_str()) {
        Some(known) => known,
        None if known.len() >= NAMES => OTHERS,
        None => {
            let name: &'static str = Box::leak(name.into_boxed_str());
            known.insert(name);
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_released_by_its_holder_only() {
        let lock = TrackedLock::new(Kind::Mutex, "m");
        assert_eq!(lock.unlock(), Err(Failure::State));
        assert_eq!(lock.lock(Wait::Always), Ok(()));
        assert_eq!((lock.lock(Wait::Always), lock.lock(Wait::Never)), (Err(Failure::Deadlock), Err(Failure::Busy)));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| (lock.unlock(), lock.lock(Wait::Never)));
            assert_eq!(other.join().unwrap(), (Err(Failure::State), Err(Failure::Busy)));
        });
        assert!(lock.is_held() && lock.is_mine());
        assert_eq!((lock.unlock(), lock.is_held()), (Ok(()), false));
    }

    #[test]
    fn a_release_without_a_holder_is_an_error() {
        let lock = TrackedLock::new(Kind::RwLock, "rw");
        assert_eq!(lock.unshare(), Err(Failure::State));
        assert_eq!((lock.share(Wait::Always), lock.share(Wait::Never)), (Ok(()), Ok(())));
        assert_eq!((lock.lock(Wait::Never), lock.unlock()), (Err(Failure::Busy), Err(Failure::State)));
        assert_eq!((lock.unshare(), lock.unshare(), lock.unshare()), (Ok(()), Ok(()), Err(Failure::State)));
        assert_eq!((lock.lock(Wait::Never), lock.share(Wait::Always)), (Ok(()), Err(Failure::Deadlock)));
        assert_eq!(lock.unlock(), Ok(()));
        let semaphore = TrackedLock::new(Kind::Semaphore(1), "s");
        assert_eq!((semaphore.share(Wait::Never), semaphore.share(Wait::Never)), (Ok(()), Err(Failure::Busy)));
        assert_eq!((semaphore.unshare(), semaphore.unshare()), (Ok(()), Err(Failure::State)));
    }

    #[test]
    fn names_are_bounded() {
        assert_eq!(interned(&"x\n".repeat(200)), "x".repeat(NAME_MAX));
        assert!((0..2 * NAMES).any(|number| interned(&format!("name {number}")) == OTHERS));
    }
}
