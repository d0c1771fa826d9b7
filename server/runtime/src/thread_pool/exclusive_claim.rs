//! Something that one thread at a time has, and letters for it that others leave while it is taken. Nobody waits for it longer than
//! for a few microseconds: who can't have it leaves a letter, and whoever has it opens the letters before it is free again.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, fence, lock};

/// Content of a lease: opens the letters that were left for it.
pub trait MessageHandler<L> {
    /// Takes the letters, in the order in which they were left, and leaves the list empty.
    fn handle_messages(&mut self, letters: &mut Vec<L>);
}

/// A lease on a `T`, with letters of type `L`.
///
/// A letter is left and then the lease is tried once more; the holder frees the lease and then looks for letters once more. One of the two
/// sees the other, so no letter lies unopened while the lease is free. Letters are few: each belongs to an unanswered request.
#[derive(Debug)]
pub struct ExclusiveClaim<T, L> {
    state: Mutex<ClaimState<T, L>>,
    messages: Mutex<Vec<L>>,
    has_messages: AtomicBool,
}

#[derive(Debug)]
struct ClaimState<T, L> {
    value: T,
    /// Memory for the letters that are being opened.
    batch: Vec<L>,
}

impl<T: MessageHandler<L>, L> ExclusiveClaim<T, L> {
    /// Free, without letters.
    pub fn new(value: T) -> Self {
        let inside = Mutex::new(ClaimState { value, batch: Vec::new() });
        ExclusiveClaim { state: inside, messages: Mutex::new(Vec::new()), has_messages: AtomicBool::new(false) }
    }

    /// Uses the value if the lease is free; letters are opened before and after. `None` if another thread has it.
    pub fn try_with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.try_hold()?;
        Some(self.with_held(held, use_it))
    }

    /// Uses the value as soon as the lease is free, however long that takes: for the start and the end of a server.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.with_held(lock(&self.state), use_it)
    }

    /// Leaves a letter. If the lease is free by then, the caller opens it; otherwise the holder will.
    pub fn send(&self, letter: L) {
        self.enqueue(letter);
        self.drain();
    }

    /// Whether letters wait to be opened. True only of a moment that may be over.
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::Relaxed)
    }

    fn enqueue(&self, letter: L) {
        let mut letters = lock(&self.messages);
        letters.push(letter);
        self.has_messages.store(true, Ordering::Relaxed);
    }

    /// Opens the letters unless another has the lease, who will. The fence orders what was posted, or freed, before the look.
    fn drain(&self) {
        fence(Ordering::SeqCst);
        while self.has_messages.load(Ordering::Relaxed) {
            let Some(mut held) = self.try_hold() else { return };
            self.drain_held(&mut held);
            drop(held);
            fence(Ordering::SeqCst);
        }
    }

    fn with_held<R>(&self, mut held: MutexGuard<'_, ClaimState<T, L>>, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.drain_held(&mut held);
        let result = use_it(&mut held.value);
        self.drain_held(&mut held);
        drop(held);
        self.drain();
        result
    }

    fn drain_held(&self, held: &mut ClaimState<T, L>) {
        if !self.has_messages.load(Ordering::Relaxed) {
            return;
        }
        {
            let mut letters = lock(&self.messages);
            self.has_messages.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *letters, &mut held.batch);
        }
        held.value.handle_messages(&mut held.batch);
        held.batch.clear();
    }

    fn try_hold(&self) -> Option<MutexGuard<'_, ClaimState<T, L>>> {
        match self.state.try_lock() {
            Ok(held) => Some(held),
            #[cfg(not(loom))]
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(_) => None,
        }
    }

    /// Canary of the models: a holder that does not look again once the lease is free.
    #[cfg(all(test, loom))]
    pub(crate) fn try_with_unchecked<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut held = self.try_hold()?;
        self.drain_held(&mut held);
        Some(use_it(&mut held.value))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Opened(Vec<u32>);

    impl MessageHandler<u32> for Opened {
        fn handle_messages(&mut self, letters: &mut Vec<u32>) {
            self.0.append(letters);
        }
    }

    #[test]
    fn letters_are_opened_in_order_by_whoever_has_the_lease() {
        let lease = ExclusiveClaim::new(Opened::default());
        lease.send(1);
        let seen = lease.try_with(|opened| {
            lease.send(2);
            lease.send(3);
            assert!(lease.try_with(|_| ()).is_none(), "taken");
            opened.0.clone()
        });
        assert_eq!(seen, Some(vec![1]));
        assert!(!lease.has_messages());
        assert_eq!(lease.with(|opened| opened.0.clone()), [1, 2, 3]);
    }
}
