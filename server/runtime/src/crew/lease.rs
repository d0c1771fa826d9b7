//! Something that one thread at a time has, and letters for it that others leave while it is taken. Nobody waits for it longer than
//! for a few microseconds: who can't have it leaves a letter, and whoever has it opens the letters before it is free again.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, fence, lock};

/// Content of a lease: opens the letters that were left for it.
pub trait Opens<L> {
    /// Takes the letters, in the order in which they were left, and leaves the list empty.
    fn open(&mut self, letters: &mut Vec<L>);
}

/// A lease on a `T`, with letters of type `L`.
///
/// A letter is left and then the lease is tried once more; the holder frees the lease and then looks for letters once more. One of the two
/// sees the other, so no letter lies unopened while the lease is free. Letters are few: each belongs to an unanswered request.
#[derive(Debug)]
pub struct Lease<T, L> {
    inside: Mutex<Inside<T, L>>,
    letters: Mutex<Vec<L>>,
    has_letters: AtomicBool,
}

#[derive(Debug)]
struct Inside<T, L> {
    value: T,
    /// Memory for the letters that are being opened.
    opening: Vec<L>,
}

impl<T: Opens<L>, L> Lease<T, L> {
    /// Free, without letters.
    pub fn new(value: T) -> Self {
        let inside = Mutex::new(Inside { value, opening: Vec::new() });
        Lease { inside, letters: Mutex::new(Vec::new()), has_letters: AtomicBool::new(false) }
    }

    /// Uses the value if the lease is free; letters are opened before and after. `None` if another thread has it.
    pub fn attempt<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.try_hold()?;
        Some(self.finish(held, use_it))
    }

    /// Uses the value as soon as the lease is free, however long that takes: for the start and the end of a server.
    pub fn insist<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.finish(lock(&self.inside), use_it)
    }

    /// Leaves a letter. If the lease is free by then, the caller opens it; otherwise the holder will.
    pub fn leave(&self, letter: L) {
        self.post(letter);
        self.deliver();
    }

    /// Whether letters wait to be opened. True only of a moment that may be over.
    pub fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Relaxed)
    }

    fn post(&self, letter: L) {
        let mut letters = lock(&self.letters);
        letters.push(letter);
        self.has_letters.store(true, Ordering::Relaxed);
    }

    /// Opens the letters unless another has the lease, who will. The fence orders what was posted, or freed, before the look.
    fn deliver(&self) {
        fence(Ordering::SeqCst);
        while self.has_letters.load(Ordering::Relaxed) {
            let Some(mut held) = self.try_hold() else { return };
            self.open(&mut held);
            drop(held);
            fence(Ordering::SeqCst);
        }
    }

    fn finish<R>(&self, mut held: MutexGuard<'_, Inside<T, L>>, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.open(&mut held);
        let result = use_it(&mut held.value);
        self.open(&mut held);
        drop(held);
        self.deliver();
        result
    }

    fn open(&self, held: &mut Inside<T, L>) {
        if !self.has_letters.load(Ordering::Relaxed) {
            return;
        }
        {
            let mut letters = lock(&self.letters);
            self.has_letters.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *letters, &mut held.opening);
        }
        held.value.open(&mut held.opening);
        held.opening.clear();
    }

    fn try_hold(&self) -> Option<MutexGuard<'_, Inside<T, L>>> {
        match self.inside.try_lock() {
            Ok(held) => Some(held),
            #[cfg(not(loom))]
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(_) => None,
        }
    }

    /// Canary of the models: a holder that does not look again once the lease is free.
    #[cfg(all(test, loom))]
    pub(crate) fn attempt_carelessly<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut held = self.try_hold()?;
        self.open(&mut held);
        Some(use_it(&mut held.value))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Opened(Vec<u32>);

    impl Opens<u32> for Opened {
        fn open(&mut self, letters: &mut Vec<u32>) {
            self.0.append(letters);
        }
    }

    #[test]
    fn letters_are_opened_in_order_by_whoever_has_the_lease() {
        let lease = Lease::new(Opened::default());
        lease.leave(1);
        let seen = lease.attempt(|opened| {
            lease.leave(2);
            lease.leave(3);
            assert!(lease.attempt(|_| ()).is_none(), "taken");
            opened.0.clone()
        });
        assert_eq!(seen, Some(vec![1]));
        assert!(!lease.has_letters());
        assert_eq!(lease.insist(|opened| opened.0.clone()), [1, 2, 3]);
    }
}
