//! Context of a thread: its core, and whether it polls a task. A future finds its runtime through
//! it. It is a thread-local that is set while a core works. Other threads have none, and code that
//! needs one documents that case.

use crate::timers::CoreTimers;
use leeward_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<CoreContext>>> = const { RefCell::new(None) };
}

struct CoreContext {
    core: usize,
    /// The core's own timers, which also distinguish this core from one of another server.
    timers: Arc<CoreTimers>,
    delay: Arc<dyn RunDelay>,
    polling: Cell<bool>,
}

/// Reports the current wait of tasks for a core.
pub(crate) trait RunDelay: Send + Sync {
    fn run_delay(&self) -> Nanos;
}

/// Location of a caller relative to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerLocation {
    /// On another thread.
    OtherThread,
    /// On that core, in a task.
    InTask,
    /// On that core, which polls its queue next.
    InLoop,
}

/// Makes this thread a core until the guard is dropped.
pub(crate) fn enter(core: usize, timers: Arc<CoreTimers>, delay: Arc<dyn RunDelay>) -> EnterGuard {
    let current = Rc::new(CoreContext { core, timers, delay, polling: Cell::new(false) });
    let _ = CURRENT.try_with(|cell| cell.replace(Some(Rc::clone(&current))));
    EnterGuard { current }
}

/// See [`enter`].
pub(crate) struct EnterGuard {
    current: Rc<CoreContext>,
}

impl EnterGuard {
    /// Calls `poll` as the code of a task.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.current.polling.set(true);
        let result = poll();
        self.current.polling.set(false);
        result
    }
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(RefCell::take);
    }
}

/// The current core, taken out of the thread-local before any other code runs.
fn current() -> Option<Rc<CoreContext>> {
    // While a thread ends there is none.
    CURRENT.try_with(|cell| cell.borrow().clone()).ok().flatten()
}

/// Timers of the core that polls the caller; `None` for code outside of a task.
pub(crate) fn timers() -> Option<Arc<CoreTimers>> {
    current().filter(|current| current.polling.get()).map(|current| Arc::clone(&current.timers))
}

/// Index of the core that polls the caller; `None` for code outside of a task.
pub(crate) fn core() -> Option<usize> {
    current().filter(|current| current.polling.get()).map(|current| current.core)
}

/// Expected wait for a core of a task that blocks now. Zero for code outside of a task, which keeps
/// its thread while it waits.
pub(crate) fn run_delay() -> Nanos {
    current().filter(|current| current.polling.get()).map_or(Nanos::ZERO, |current| current.delay.run_delay())
}

/// The caller's location, as seen from the core with these timers.
pub(crate) fn caller_location(timers: &Arc<CoreTimers>) -> CallerLocation {
    match current() {
        Some(current) if !Arc::ptr_eq(&current.timers, timers) => CallerLocation::OtherThread,
        Some(current) if current.polling.get() => CallerLocation::InTask,
        Some(_) => CallerLocation::InLoop,
        None => CallerLocation::OtherThread,
    }
}
