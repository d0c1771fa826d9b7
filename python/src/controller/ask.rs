//! One call from a simulation into Python: it is cheap, and ends the simulation if it raises.
//!
//! A simulation's thread keeps its interpreter state between calls, because making one takes longer
//! than a control tick. Calls are counted and not timed: reading a clock would be a good part of
//! the cost, and a watching thread sees that the count stands still. An exception leaves the
//! simulation as a panic without a message, which `patience` turns back into the exception.
//!
//! A thread may not be in a call when the interpreter ends: Python would end the thread in the
//! middle of Rust's frames, which aborts the process. So whoever stops waiting for a run first ends
//! its calls, and so does [`end_at_exit`].

use crate::patience::Raised;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::{c_long, c_ulong};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Counter of one thread's calls.
struct Watch {
    /// Started plus finished calls: odd while a call is in progress.
    calls: AtomicU64,
    /// Slot of the called class.
    slot: AtomicU64,
    /// Python's identifier of the thread.
    ident: c_ulong,
    /// True if Python made the thread, and so ends its state.
    is_pythons: bool,
    /// Last count that the watching thread saw, and the time at which it first saw that count, in
    /// nanoseconds since [`clock_origin`].
    seen: AtomicU64,
    seen_at: AtomicU64,
}

impl Watch {
    /// Time for which the current call has been observed; `None` between calls.
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

    fn is_in_call(&self) -> bool {
        !self.calls.load(Ordering::SeqCst).is_multiple_of(2)
    }

    /// Raises `exception` in the thread's Python code, at its next bytecode.
    fn send(&self, _: Python<'_>, exception: &Bound<'_, PyAny>) {
        // SAFETY: this thread holds the interpreter. If the other thread has ended, Python finds no
        // state for its identifier and does nothing.
        unsafe { ffi::PyThreadState_SetAsyncExc(self.ident as c_long, exception.as_ptr()) };
    }
}

static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// True once the interpreter is about to end: no further call begins.
static IS_CLOSING: AtomicBool = AtomicBool::new(false);

/// All threads that have called a controller and still live.
fn watches() -> Vec<Arc<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
}

/// A fixed instant before the first use of the clock.
fn clock_origin() -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now)
}

/// The interpreter state that this thread keeps between calls.
struct InterpreterState {
    state: ffi::PyGILState_STATE,
    thread: *mut ffi::PyThreadState,
    watch: Arc<Watch>,
}

thread_local! {
    static INTERPRETER_STATE: RefCell<Option<InterpreterState>> = const { RefCell::new(None) };
}

impl InterpreterState {
    fn new() -> Self {
        // SAFETY: the interpreter runs, because Python started the simulation. The state belongs to
        // this thread until `drop`; the lock itself is released at once.
        let (state, ident, is_pythons, thread) = unsafe {
            let is_pythons = !ffi::PyGILState_GetThisThreadState().is_null();
            let state = ffi::PyGILState_Ensure();
            let ident = ffi::PyThread_get_thread_ident();
            (state, ident as c_ulong, is_pythons, ffi::PyEval_SaveThread())
        };
        let none = || AtomicU64::new(0);
        let watch = Arc::new(Watch { calls: none(), slot: none(), ident, is_pythons, seen: none(), seen_at: none() });
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        InterpreterState { state, thread, watch }
    }
}

impl Drop for InterpreterState {
    fn drop(&mut self) {
        // SAFETY: the state still belongs to this thread, so it has the reference that `new` took;
        // it is released here. Threads made by Python end their state by themselves, before this.
        unsafe {
            if ffi::Py_IsInitialized() != 0 && ffi::PyGILState_GetThisThreadState() == self.thread {
                ffi::PyEval_RestoreThread(self.thread);
                ffi::PyGILState_Release(self.state);
            }
        }
    }
}

/// Calls `call` with the interpreter; does not return if `call` raises.
pub(super) fn call_python<T>(slot: u64, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
    if IS_CLOSING.load(Ordering::SeqCst) {
        raise(PyKeyboardInterrupt::new_err("the interpreter ends"));
    }
    let watch = INTERPRETER_STATE.with(|interpreter_state| {
        let mut interpreter_state = interpreter_state.borrow_mut();
        Arc::clone(&interpreter_state.get_or_insert_with(InterpreterState::new).watch)
    });
    watch.slot.store(slot, Ordering::Relaxed);
    // Only this thread writes the counter. Calls are never nested.
    let calls = watch.calls.load(Ordering::Relaxed);
    // Before the check: `end_at_exit` sees this call, or this call sees that the end has begun.
    watch.calls.store(calls + 1, Ordering::SeqCst);
    if IS_CLOSING.load(Ordering::SeqCst) {
        watch.calls.store(calls + 2, Ordering::Relaxed);
        raise(PyKeyboardInterrupt::new_err("the interpreter ends"));
    }
    let answer = Python::attach(call);
    watch.calls.store(calls + 2, Ordering::Relaxed);
    answer.unwrap_or_else(|error| raise(error))
}

/// Leaves the simulation with this exception.
fn raise(error: PyErr) -> ! {
    std::panic::resume_unwind(Box::new(Raised(error)))
}

/// Result of a check for calls that last too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// No call lasts too long.
    No,
    /// An exception was sent to a call.
    Notified,
    /// A call ignores exceptions.
    Unresponsive,
}

/// Time after the exception from which a call counts as unresponsive.
const UNRESPONSIVE: Duration = Duration::from_secs(1);

/// Sends `exception` to calls into one of `slots` that last longer than `patience`.
pub(crate) fn overdue(py: Python<'_>, slots: &[u64], patience: Duration, exception: &Bound<'_, PyAny>) -> Overdue {
    let now = clock_origin().elapsed();
    let mut found = Overdue::No;
    for watch in watches().iter().filter(|watch| slots.contains(&watch.slot.load(Ordering::Relaxed))) {
        let Some(lasted) = watch.lasted(now).filter(|lasted| *lasted >= patience) else { continue };
        if lasted > patience + UNRESPONSIVE {
            return Overdue::Unresponsive;
        }
        watch.send(py, exception);
        found = Overdue::Notified;
    }
    found
}

/// Sends `KeyboardInterrupt` to the calls in progress into one of `slots`.
pub(crate) fn interrupt(py: Python<'_>, slots: &[u64]) {
    let exception = py.get_type::<PyKeyboardInterrupt>();
    for watch in watches().iter().filter(|watch| slots.contains(&watch.slot.load(Ordering::Relaxed))) {
        if watch.is_in_call() {
            watch.send(py, &exception);
        }
    }
}

/// Time for which the end of the interpreter waits for calls that ignore exceptions.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Time between two looks at the calls.
const LOOK: Duration = Duration::from_millis(5);

/// Forgets all threads: a process that was forked has none of them.
#[pyfunction]
pub(crate) fn forget_threads() {
    // A thread of the parent may have held it.
    if let Ok(mut watches) = WATCHES.try_lock() {
        watches.clear();
    }
}

/// Ends all calls, and the threads that made them. Python calls this before it ends.
#[pyfunction]
pub(crate) fn end_at_exit(py: Python<'_>) {
    IS_CLOSING.store(true, Ordering::SeqCst);
    let begun = clock_origin().elapsed();
    let exception = py.get_type::<PyKeyboardInterrupt>();
    loop {
        // A thread of Python lives on after its call. The others end with their runs.
        let rest: Vec<Arc<Watch>> =
            watches().into_iter().filter(|watch| watch.is_in_call() || !watch.is_pythons).collect();
        if rest.is_empty() || clock_origin().elapsed() - begun > LAST_WAIT {
            return;
        }
        rest.iter().filter(|watch| watch.is_in_call()).for_each(|watch| watch.send(py, &exception));
        drop(rest);
        py.detach(|| std::thread::sleep(LOOK));
    }
}
