//! Messages from one core to another, and the wake-up of the receiver.

use leeward_host::sync::{Mutex, lock};

/// Wakes a core from its poll, now or the next time it would wait.
pub(crate) trait Wake {
    /// Wakes the core.
    fn wake(&self);
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // A waker fails only when its event counter is full. The core is then being woken already.
        let _ = mio::Waker::wake(self);
    }
}

/// Messages for a core. A message is a connection or an unanswered call, and both are bounded in
/// number.
pub(crate) struct Inbox<M, W> {
    messages: Mutex<Vec<M>>,
    waker: W,
}

impl<M, W: Wake> Inbox<M, W> {
    /// Makes an empty inbox for the core that `waker` wakes.
    pub(crate) fn new(waker: W) -> Self {
        Inbox { messages: Mutex::new(Vec::new()), waker }
    }

    /// Leaves a message, then wakes the core. In this order the woken core finds the message.
    pub(crate) fn send(&self, message: M) {
        self.leave(message);
        self.waker.wake();
    }

    /// Leaves a message for a core that is awake and will read it, or that the caller wakes
    /// afterwards.
    pub(crate) fn leave(&self, message: M) {
        lock(&self.messages).push(message);
    }

    /// Takes the messages into `into`, which is empty.
    pub(crate) fn receive(&self, into: &mut Vec<M>) {
        // Uncontended, and with one core nearly always empty: a lock of some nanoseconds.
        std::mem::swap(&mut *lock(&self.messages), into);
    }

    /// Wakes the core without a message.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use leeward_host::sync::{AtomicU64, Ordering};
    use loom::{sync::Arc, thread};

    /// A poll's event counter: waking increments it, waiting takes it.
    struct Counter(AtomicU64);

    impl Wake for Arc<Counter> {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A core that has read its inbox and then waits has every message, or is woken for the others.
    #[test]
    fn no_message_is_lost() {
        loom::model(|| {
            let counter = Arc::new(Counter(AtomicU64::new(0)));
            let inbox = Arc::new(Inbox::new(Arc::clone(&counter)));
            let senders: Vec<_> = (0..2)
                .map(|message| {
                    let inbox = Arc::clone(&inbox);
                    thread::spawn(move || inbox.send(message))
                })
                .collect();
            let mut received = Vec::new();
            let take = |received: &mut Vec<u64>| {
                let mut messages = Vec::new();
                inbox.receive(&mut messages);
                received.extend(messages);
            };
            // Waits only if nothing has woken it since it read the inbox.
            take(&mut received);
            while counter.0.swap(0, Ordering::SeqCst) > 0 {
                take(&mut received);
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            let woken = counter.0.load(Ordering::SeqCst) > 0;
            let before = received.len();
            take(&mut received);
            assert!(before == received.len() || woken, "messages wait for a core that sleeps");
            received.sort_unstable();
            assert_eq!(received, [0, 1]);
        });
    }
}
