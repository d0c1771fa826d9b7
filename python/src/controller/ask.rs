//! A call into Python from a simulation: cheap, and over when it raises.
//!
//! A thread that simulates keeps its interpreter state between calls: making one takes longer than a control tick. Calls are counted and
//! not timed: reading a clock would be a good part of one, and whoever watches sees that a count stands still. An exception leaves the
//! simulation as a panic without a message, which `patience` turns back into the exception.

use crate::patience::Raised;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::{c_long, c_ulong};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The calls of a thread.
struct Watch {
    /// Calls that have begun and calls that are over: an odd number while one is under way.
    calls: AtomicU64,
    /// The class that is asked.
    slot: AtomicU64,
    /// Python's name of the thread.
    ident: c_ulong,
    /// Number that a watcher saw, and when it saw it first, in nanoseconds since [`began`].
    seen: AtomicU64,
    seen_at: AtomicU64,
}

impl Watch {
    /// How long the call under way has been seen.
    fn lasted(&self, now: Duration) -> Option<Duration> {
        let calls = self.calls.load(Ordering::Relaxed);
        if calls.is_multiple_of(2) {
            return None;
        }
        if self.seen.swap(calls, Ordering::Relaxed) != calls {
            self.seen_at.store(now.as_nanos() as u64, Ordering::Relaxed);
        }
        Some(now.saturating_sub(Duration::from_nanos(self.seen_at.load(Ordering::Relaxed))))
    }
}

static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// An instant before all calls.
#[expect(clippy::disallowed_methods, reason = "how long a callback lasts decides nothing in a simulation")]
fn began() -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now)
}

/// Interpreter state of this thread.
struct Residence {
    state: ffi::PyGILState_STATE,
    thread: *mut ffi::PyThreadState,
    watch: Arc<Watch>,
}

thread_local! {
    static RESIDENCE: RefCell<Option<Residence>> = const { RefCell::new(None) };
}

impl Residence {
    fn new() -> Self {
        // SAFETY: the interpreter runs, or nobody could have asked for a simulation. The state stays this thread's until `drop`;
        // the lock itself is given back at once.
        let (state, ident, thread) = unsafe {
            let state = ffi::PyGILState_Ensure();
            let ident = ffi::PyThread_get_thread_ident();
            (state, ident as c_ulong, ffi::PyEval_SaveThread())
        };
        let none = || AtomicU64::new(0);
        let watch = Arc::new(Watch { calls: none(), slot: none(), ident, seen: none(), seen_at: none() });
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        Residence { state, thread, watch }
    }
}

impl Drop for Residence {
    fn drop(&mut self) {
        // SAFETY: a state that is still this thread's has the reference that `new` took, which is given up here. Threads that Python
        // has made end their state by themselves, before this.
        unsafe {
            if ffi::Py_IsInitialized() != 0 && ffi::PyGILState_GetThisThreadState() == self.thread {
                ffi::PyEval_RestoreThread(self.thread);
                ffi::PyGILState_Release(self.state);
            }
        }
    }
}

/// Asks with the interpreter; does not come back when `call` raises.
pub(super) fn ask<T>(slot: u64, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
    let watch = RESIDENCE.with(|residence| {
        let mut residence = residence.borrow_mut();
        Arc::clone(&residence.get_or_insert_with(Residence::new).watch)
    });
    watch.slot.store(slot, Ordering::Relaxed);
    // Nobody else writes it. A call never asks again on its way.
    let calls = watch.calls.load(Ordering::Relaxed);
    watch.calls.store(calls + 1, Ordering::Relaxed);
    let answer = Python::attach(call);
    watch.calls.store(calls + 2, Ordering::Relaxed);
    answer.unwrap_or_else(|error| raise(error))
}

/// Leaves the simulation with this exception.
fn raise(error: PyErr) -> ! {
    std::panic::resume_unwind(Box::new(Raised(error)))
}

/// State of calls that last too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Nothing lasts too long.
    No,
    /// An exception was sent to it.
    Told,
    /// A call does not hear of exceptions.
    Deaf,
}

/// How long after an exception was sent to it a call counts as deaf.
const DEAF: Duration = Duration::from_secs(1);

/// Sends `exception` to calls into one of `slots` that last longer than `patience`.
pub(crate) fn overdue(py: Python<'_>, slots: &[u64], patience: Duration, exception: &Bound<'_, PyAny>) -> Overdue {
    let _ = py;
    let now = began().elapsed();
    let watches: Vec<Arc<Watch>> =
        WATCHES.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    let mut found = Overdue::No;
    for watch in watches.iter().filter(|watch| slots.contains(&watch.slot.load(Ordering::Relaxed))) {
        let Some(lasted) = watch.lasted(now).filter(|lasted| *lasted >= patience) else { continue };
        if lasted > patience + DEAF {
            return Overdue::Deaf;
        }
        // SAFETY: this thread has the interpreter; a thread that is gone has no state that is found.
        unsafe { ffi::PyThreadState_SetAsyncExc(watch.ident as c_long, exception.as_ptr()) };
        found = Overdue::Told;
    }
    found
}
