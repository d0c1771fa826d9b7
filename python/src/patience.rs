//! Waiting for work on other threads while Python stays responsive to Ctrl-C, stop requests and
//! progress.

use crate::controller::{Overdue, interrupt, overdue};
use crate::errors;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Interval between checks of Python's signals.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Polls per progress report: ten reports per second move a progress bar smoothly.
const POLLS_PER_REPORT: u32 = 10;

/// Time limit of a call into a controller: far longer than any decision, and shorter than a user's
/// patience.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// A stop request that several calls may share.
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

    /// Requests the stop: no further run starts, and runs in progress end.
    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Finished runs, and their total number.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) done: AtomicUsize,
    pub(crate) total: AtomicUsize,
}

/// A Python exception that leaves a controller as a silent panic.
pub(crate) struct Raised(pub(crate) PyErr);

/// Runs `work` on a thread of its own, without the interpreter.
///
/// After Ctrl-C, or if `stop` is set, this sets `cancel`, ends the calls into controllers of
/// `slots`, for which it waits a second at most, and returns: runs in progress check `cancel`
/// before their next event.
pub(crate) fn run_in_thread<T: Send + 'static>(
    py: Python<'_>,
    cancel: &Arc<AtomicBool>,
    progress: &Arc<Progress>,
    notify: Option<&Py<PyAny>>,
    stop: Option<&Stop>,
    slots: &[u64],
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let spawned = std::thread::Builder::new().name("leeward".into()).spawn(move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work))); // the caller may have returned
    });
    spawned.map_err(|error| errors::plain(py, "RunError", &format!("a thread for the runs: {error}")))?;
    let waited = wait_for(py, progress, notify, stop, slots, &receiver);
    if waited.is_err() {
        cancel.store(true, Ordering::Relaxed);
        end_calls(py, slots, &receiver);
    }
    waited
}

/// Time for which the end of a run waits for a controller that ignores exceptions.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Waits until the run has ended, and interrupts its calls into controllers meanwhile: otherwise an
/// endless one would go on, and the end of Python would abort the process.
fn end_calls<T: Send>(py: Python<'_>, slots: &[u64], receiver: &Receiver<std::thread::Result<T>>) {
    let looks = if slots.is_empty() { 0 } else { LAST_WAIT.as_millis() / POLL_INTERVAL.as_millis() };
    for _ in 0..looks {
        interrupt(py, slots);
        let receiver = AssertOne(receiver);
        if !matches!(py.detach(move || receiver.wait(POLL_INTERVAL)), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

/// Waits for the result of the runs' thread.
fn wait_for<T: Send>(
    py: Python<'_>,
    progress: &Arc<Progress>,
    notify: Option<&Py<PyAny>>,
    stop: Option<&Stop>,
    slots: &[u64],
    receiver: &Receiver<std::thread::Result<T>>,
) -> PyResult<T> {
    let mut last = None;
    for poll in 0u32.. {
        // An `mpsc` receiver is not `Sync`; only this closure uses it.
        let receiver = AssertOne(receiver);
        match py.detach(move || receiver.wait(POLL_INTERVAL)) {
            Ok(Ok(value)) => {
                report_progress(py, progress, notify, &mut last)?;
                return Ok(value);
            }
            Ok(Err(panic)) => return Err(of_panic(py, panic)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::plain(py, "RunError", "the runs' thread is gone"));
            }
        }
        py.check_signals()?;
        if stop.is_some_and(|stop| stop.flag.load(Ordering::Relaxed)) {
            // At its end, Python waits for its own threads: a thread that waited for the run would
            // keep Python alive for minutes.
            return Err(errors::plain(py, "RunError", "the run was to stop"));
        }
        if poll % POLLS_PER_REPORT == POLLS_PER_REPORT - 1 && !slots.is_empty() {
            let endless = py.import("leeward.errors")?.getattr("ControllerEndless")?;
            if overdue(py, slots, CALL_LIMIT, &endless) == Overdue::Unresponsive {
                return Err(errors::plain(py, "ControllerEndless", "a controller's method does not return"));
            }
        }
        if poll % POLLS_PER_REPORT == 0 {
            report_progress(py, progress, notify, &mut last)?;
        }
    }
    unreachable!("the loop above has no end of its own")
}

/// Calls `notify(done, total)` if the numbers have changed.
fn report_progress(
    py: Python<'_>,
    progress: &Progress,
    notify: Option<&Py<PyAny>>,
    last: &mut Option<(usize, usize)>,
) -> PyResult<()> {
    let now = (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
    if let (Some(notify), true) = (notify, now.1 > 0 && *last != Some(now)) {
        *last = Some(now);
        notify.call1(py, now)?;
    }
    Ok(())
}

/// The exception that a controller raised, or a `RunError` with the message of any other panic.
fn of_panic(py: Python<'_>, panic: Box<dyn Any + Send>) -> PyErr {
    let panic = match panic.downcast::<Raised>() {
        Ok(raised) => return raised.0,
        Err(panic) => panic,
    };
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    errors::plain(py, "RunError", &format!("a defect, please report it: {}", message.unwrap_or_default()))
}

/// Runs short `work` on this thread, without the interpreter; a controller's class acquires it
/// again by itself.
pub(crate) fn catch_panics<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| of_panic(py, panic))
}

/// A reference that only the waiting thread uses.
struct AssertOne<'a, T>(&'a Receiver<T>);

// SAFETY: `detach` runs its closure on the calling thread, so the receiver never leaves its thread.
// The bound exists for the interpreter's own objects, and a receiver is none.
unsafe impl<T> Send for AssertOne<'_, T> {}

impl<T> AssertOne<'_, T> {
    fn wait(self, span: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(span)
    }
}
