//! A value that one thread at a time has, with messages that other threads leave for it. No thread
//! waits for it longer than a few microseconds. A thread that can't get it leaves a message, and
//! the holder handles all messages before it releases the value.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, fence, lock};

/// A value that handles the messages left for it.
pub trait MessageHandler<L> {
    /// Handles the messages, in the order in which they were left, and leaves the list empty.
    fn handle_messages(&mut self, messages: &mut Vec<L>);
}

/// Exclusive access to a `T`, with messages of type `L`.
///
/// A sender leaves its message and then tries the claim once more. The holder releases the claim
/// and then checks for messages once more. One of the two sees the other, so no message stays
/// unhandled while the claim is free. Messages are few: each belongs to an unanswered request.
#[derive(Debug)]
pub struct ExclusiveClaim<T, L> {
    state: Mutex<ClaimState<T, L>>,
    messages: Mutex<Vec<L>>,
    has_messages: AtomicBool,
}

#[derive(Debug)]
struct ClaimState<T, L> {
    value: T,
    /// Memory for the messages that are being handled.
    batch: Vec<L>,
}

impl<T: MessageHandler<L>, L> ExclusiveClaim<T, L> {
    /// Makes a free claim without messages.
    pub fn new(value: T) -> Self {
        let claim_state = Mutex::new(ClaimState { value, batch: Vec::new() });
        ExclusiveClaim { state: claim_state, messages: Mutex::new(Vec::new()), has_messages: AtomicBool::new(false) }
    }

    /// Uses the value if the claim is free; messages are handled before and after. `None` if
    /// another thread has it.
    pub fn try_with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.try_hold()?;
        Some(self.with_held(held, use_it))
    }

    /// Uses the value as soon as the claim is free, however long that takes. For the start and the
    /// end of a server.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        self.with_held(lock(&self.state), use_it)
    }

    /// Leaves a message. If the claim is free by then, the caller handles it; otherwise the holder
    /// will.
    pub fn send(&self, message: L) {
        self.enqueue(message);
        self.drain();
    }

    /// Returns whether messages wait. The answer may be outdated already.
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::Relaxed)
    }

    fn enqueue(&self, message: L) {
        let mut messages = lock(&self.messages);
        messages.push(message);
        self.has_messages.store(true, Ordering::Relaxed);
    }

    /// Handles the messages, unless another thread holds the claim and will do so. The fence orders
    /// the sent message, or the release, before the check.
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
            let mut messages = lock(&self.messages);
            self.has_messages.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *messages, &mut held.batch);
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

    /// Canary of the models: a holder that does not check again after it has released the claim.
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
        fn handle_messages(&mut self, messages: &mut Vec<u32>) {
            self.0.append(messages);
        }
    }

    #[test]
    fn messages_are_handled_in_order_by_the_holder_of_the_claim() {
        let claim = ExclusiveClaim::new(Opened::default());
        claim.send(1);
        let seen = claim.try_with(|handler| {
            claim.send(2);
            claim.send(3);
            assert!(claim.try_with(|_| ()).is_none(), "taken");
            handler.0.clone()
        });
        assert_eq!(seen, Some(vec![1]));
        assert!(!claim.has_messages());
        assert_eq!(claim.with(|handler| handler.0.clone()), [1, 2, 3]);
    }
}
