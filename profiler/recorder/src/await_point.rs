//! What a request's future waits for: found while the future is polled.
//!
//! A future that returns `Poll::Pending` has given its waker to somebody. The thread's calls at
//! that moment are what the request awaits, such as the read of a socket within an `async fn`. A
//! name set by [`crate::wait`] comes first.
//!
//! Contains no state of a request.

use std::cell::Cell;

use crate::runtime;

/// What the innermost request that this thread polls awaits.
#[derive(Clone, Copy)]
struct AwaitPoint {
    is_polling: bool,
    /// Queue of the name; 0 if none is set.
    named: usize,
    /// Queue of the calls; 0 if they are not known.
    stack: usize,
}

const NONE: AwaitPoint = AwaitPoint { is_polling: false, named: 0, stack: 0 };

thread_local!(static CURRENT: Cell<AwaitPoint> = const { Cell::new(NONE) });

/// A poll of a request by this thread; requests may be nested. Dropping it ends the poll.
pub(crate) struct CurrentPoll {
    outer: AwaitPoint,
}

impl CurrentPoll {
    pub(crate) fn enter() -> CurrentPoll {
        let current = AwaitPoint { is_polling: true, ..NONE };
        // While a thread ends, its thread-local is gone.
        CurrentPoll { outer: CURRENT.try_with(|cell| cell.replace(current)).unwrap_or(NONE) }
    }

    /// Returns the queue that stands for what the future awaits; 0 if it is not known.
    pub(crate) fn queue(&self) -> usize {
        let current = CURRENT.try_with(Cell::get).unwrap_or(NONE);
        if current.named == 0 { current.stack } else { current.named }
    }
}

impl Drop for CurrentPoll {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|cell| cell.set(self.outer));
    }
}

/// Notes the thread's calls, if it polls a request that awaits nothing else yet.
pub(crate) fn note_stack() {
    let _ = CURRENT.try_with(|cell| {
        let current = cell.get();
        if current.is_polling && current.stack == 0 {
            cell.set(AwaitPoint { stack: runtime::stack_queue(), ..current });
        }
    });
}

/// Notes a name, if this thread polls a request. The innermost name stays.
pub(crate) fn note_name(name: &str) {
    let _ = CURRENT.try_with(|cell| {
        let current = cell.get();
        if current.is_polling && current.named == 0 {
            cell.set(AwaitPoint { named: runtime::named_queue(name), ..current });
        }
    });
}
