//! Waiting for work on other threads while Python stays alive: Ctrl-C, a wish to stop, progress.

use crate::controller::{Overdue, overdue};
use crate::errors;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// So often Python's signals are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Progress is told every so many looks: a bar that moves ten times a second moves smoothly.
const TELL: u32 = 10;

/// How long a call into a controller may last: far longer than any decision, and shorter than anybody waits in silence.
const CALL: Duration = Duration::from_secs(10);

/// A wish to stop that several calls may share.
#[pyclass(frozen, module = "leeward._leeward")]
#[derive(Clone, Default)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Stop::default()
    }

    /// Wishes it. No further run starts, and those under way end.
    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Runs that are done, of how many.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) done: AtomicUsize,
    pub(crate) total: AtomicUsize,
}

/// A Python exception on its way out of a controller, as a panic that nobody reports.
pub(crate) struct Raised(pub(crate) PyErr);

/// Does `work` on a thread of its own, without the interpreter. After Ctrl-C, or if it is to `stop`, `cancel` is set, and the call is over
/// at once: runs that are under way see it before their next event.
pub(crate) fn patiently<T: Send + 'static>(
    py: Python<'_>,
    cancel: &Arc<AtomicBool>,
    progress: &Arc<Progress>,
    tell: Option<&Py<PyAny>>,
    stop: Option<&Stop>,
    asked: &[u64],
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let spawned = std::thread::Builder::new().name("leeward".into()).spawn(move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work))); // nobody may be waiting any more
    });
    spawned.map_err(|error| errors::plain(py, "RunError", &format!("a thread for the runs: {error}")))?;
    let mut told = None;
    for look in 0u32.. {
        // An `mpsc` receiver is not `Sync`, and this closure is the only one that has it.
        let receiver = AssertOne(&receiver);
        match py.detach(move || receiver.wait(LOOK)) {
            Ok(Ok(value)) => {
                tell_progress(py, progress, tell, &mut told)?;
                return Ok(value);
            }
            Ok(Err(panic)) => return Err(of_panic(py, panic)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::plain(py, "RunError", "the runs' thread is gone"));
            }
        }
        py.check_signals().inspect_err(|_| cancel.store(true, Ordering::Relaxed))?;
        if stop.is_some_and(|stop| stop.flag.load(Ordering::Relaxed)) {
            cancel.store(true, Ordering::Relaxed);
            // Python waits for its own threads at its end: one that waited for the run would keep it alive for minutes.
            return Err(errors::plain(py, "RunError", "the run was to stop"));
        }
        if look % TELL == TELL - 1 && !asked.is_empty() {
            let endless = py.import("leeward.errors")?.getattr("ControllerEndless")?;
            if overdue(py, asked, CALL, &endless) == Overdue::Deaf {
                cancel.store(true, Ordering::Relaxed);
                return Err(errors::plain(py, "ControllerEndless", "a controller's method does not return"));
            }
        }
        if look % TELL == 0 {
            tell_progress(py, progress, tell, &mut told).inspect_err(|_| cancel.store(true, Ordering::Relaxed))?;
        }
    }
    unreachable!("the loop above has no end of its own")
}

/// Calls `tell(done, total)` if that has changed.
fn tell_progress(
    py: Python<'_>,
    progress: &Progress,
    tell: Option<&Py<PyAny>>,
    told: &mut Option<(usize, usize)>,
) -> PyResult<()> {
    let now = (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
    if let (Some(tell), true) = (tell, now.1 > 0 && *told != Some(now)) {
        *told = Some(now);
        tell.call1(py, now)?;
    }
    Ok(())
}

/// The exception that a controller raised, or what a defect of ours said.
fn of_panic(py: Python<'_>, panic: Box<dyn Any + Send>) -> PyErr {
    let panic = match panic.downcast::<Raised>() {
        Ok(raised) => return raised.0,
        Err(panic) => panic,
    };
    let words = panic.downcast_ref::<String>().cloned();
    let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    errors::plain(py, "RunError", &format!("a defect, please report it: {}", words.unwrap_or_default()))
}

/// The same for work on this thread that is soon done. A controller's class takes the interpreter by itself.
pub(crate) fn catching<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| of_panic(py, panic))
}

/// A reference that only the thread which waits uses.
struct AssertOne<'a, T>(&'a std::sync::mpsc::Receiver<T>);

// SAFETY: `detach` runs its closure on the calling thread, so the receiver never leaves its thread; the bound exists for the
// interpreter's own objects, of which this is none.
unsafe impl<T> Send for AssertOne<'_, T> {}

impl<T> AssertOne<'_, T> {
    fn wait(self, span: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(span)
    }
}
