//! Waits with the thread instead of a task: the thread polls the same futures, and sleeps until it
//! is woken.

use sleeper::Sleeper;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.rouse();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rouse();
    }
}

/// Returns the future's output. The thread sleeps until then.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let sleeper = Arc::new(Sleeper::of_this_thread());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        sleeper.sleep();
    }
}

#[cfg(not(loom))]
mod sleeper {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{Thread, current, park};

    /// Wakes a sleeping thread, or keeps it from the next sleep.
    pub(super) struct Sleeper {
        thread: Thread,
        roused: AtomicBool,
    }

    impl Sleeper {
        pub(super) fn of_this_thread() -> Self {
            Sleeper { thread: current(), roused: AtomicBool::new(false) }
        }

        pub(super) fn rouse(&self) {
            self.roused.store(true, Ordering::Release);
            self.thread.unpark();
        }

        /// Sleeps until it was roused since the last sleep. Other code may unpark this thread for
        /// reasons of its own.
        pub(super) fn sleep(&self) {
            while !self.roused.swap(false, Ordering::Acquire) {
                park();
            }
        }
    }
}

/// Loom loses an unpark if the thread waits for a mutex at that moment.
#[cfg(loom)]
mod sleeper {
    use crate::sync::lock;
    use loom::sync::{Condvar, Mutex};

    pub(super) struct Sleeper {
        roused: Mutex<bool>,
        changed: Condvar,
    }

    impl Sleeper {
        pub(super) fn of_this_thread() -> Self {
            Sleeper { roused: Mutex::new(false), changed: Condvar::new() }
        }

        pub(super) fn rouse(&self) {
            *lock(&self.roused) = true;
            self.changed.notify_one();
        }

        pub(super) fn sleep(&self) {
            let mut roused = lock(&self.roused);
            while !*roused {
                roused = self.changed.wait(roused).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            *roused = false;
        }
    }
}
