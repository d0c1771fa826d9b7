//! Waiting with the thread instead of a task: the same futures, and the thread sleeps until it is woken.

use crate::sync::{AtomicBool, Ordering, Thread, current_thread, park};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a thread that sleeps, or keeps it from the next sleep.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The future's output. The thread sleeps until then.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let sleeper = Arc::new(Sleeper { thread: current_thread(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // Others may have unparked this thread for reasons of their own.
        while !sleeper.woken.swap(false, Ordering::Acquire) {
            park();
        }
    }
}
