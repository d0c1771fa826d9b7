//! Waker of a request's future: reports when the future could go on, and where it waits.
//!
//! Contains no decision about what a request is.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::await_point;
use crate::runtime;

/// Queue of requests that could go on, and wait for a thread (`docs/trace-format.md`).
pub(crate) const READY: usize = 257;

/// A thread polls the future.
const POLLED: u8 = 0;
/// A thread polls the future, which was woken meanwhile.
const POLLED_AND_WOKEN: u8 = 1;
/// The future waits.
const SUSPENDED: u8 = 2;
/// The future was woken, and waits for a thread.
const WOKEN: u8 = 3;

/// State of a request between its polls.
#[derive(Debug)]
pub(crate) struct WakeState {
    id: u64,
    state: AtomicU8,
}

impl WakeState {
    pub(crate) fn new(id: u64) -> Arc<WakeState> {
        Arc::new(WakeState { id, state: AtomicU8::new(POLLED) })
    }

    /// A poll begins.
    pub(crate) fn resume(&self) {
        self.state.store(POLLED, Ordering::SeqCst);
    }

    /// A poll has ended, and the future waits in this queue.
    ///
    /// The queue is reported before the state changes, so a waker's report comes later.
    pub(crate) fn suspend(&self, queue: usize) {
        runtime::request_block(self.id, queue);
        if self.state.compare_exchange(POLLED, SUSPENDED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.state.store(WOKEN, Ordering::SeqCst);
            runtime::request_block(self.id, READY);
        }
    }

    /// The request is over: later wakes are not reported.
    pub(crate) fn end(&self) {
        self.state.store(WOKEN, Ordering::SeqCst);
    }

    fn wake(&self) {
        let woken = |state| match state {
            POLLED => Some(POLLED_AND_WOKEN),
            SUSPENDED => Some(WOKEN),
            _ => None,
        };
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, woken) == Ok(SUSPENDED) {
            runtime::request_block(self.id, READY);
        }
    }
}

/// What the waker of one poll and its clones wake.
struct Woken {
    state: Arc<WakeState>,
    inner: Waker,
}

/// Waker of one poll, or a clone of it. A clone that is made in a poll is a value of its own, so
/// that its end shows.
struct RequestWaker(Arc<Woken>);

impl RequestWaker {
    fn wake(&self) {
        // The report comes first: another thread may poll the future as soon as it is woken.
        self.0.state.wake();
        self.0.inner.wake_by_ref();
    }
}

/// Returns a waker that reports a request's wakes before it passes them on.
///
/// Each poll needs a new one. A future keeps a waker that it has; only of another one it makes a
/// clone, and the clone tells where it waits.
pub(crate) fn request_waker(state: Arc<WakeState>, inner: Waker) -> Waker {
    let waker = RequestWaker(Arc::new(Woken { state, inner }));
    let data = Arc::into_raw(Arc::new(waker)).cast();
    // SAFETY: the functions of VTABLE are for pointers from `Arc::<RequestWaker>::into_raw`, each
    // of which owns one reference. `RequestWaker` is Send and Sync, because its parts are.
    unsafe { Waker::new(data, &VTABLE) }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// Returns the waker behind the pointer, without taking its reference.
///
/// # Safety
/// The pointer is from `Arc::<RequestWaker>::into_raw`, and its reference is not dropped yet.
unsafe fn borrow(data: *const ()) -> ManuallyDrop<Arc<RequestWaker>> {
    // SAFETY: see above; the reference is not dropped here.
    ManuallyDrop::new(unsafe { Arc::from_raw(data.cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: `Waker` calls this with its own pointer.
    let waker = unsafe { borrow(data) };
    let clone = if await_point::is_polling() {
        let clone = Arc::new(RequestWaker(Arc::clone(&waker.0)));
        let alive: Weak<RequestWaker> = Arc::downgrade(&clone);
        await_point::note_stack(alive);
        clone
    } else {
        Arc::clone(&waker)
    };
    RawWaker::new(Arc::into_raw(clone).cast(), &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: `Waker` calls this with its own pointer, and gives up its reference.
    let waker = unsafe { Arc::from_raw(data.cast::<RequestWaker>()) };
    waker.wake();
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: `Waker` calls this with its own pointer.
    unsafe { borrow(data) }.wake();
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: `Waker` calls this with its own pointer, and gives up its reference.
    drop(unsafe { Arc::from_raw(data.cast::<RequestWaker>()) });
}
