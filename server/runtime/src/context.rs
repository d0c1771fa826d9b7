//! Context of a thread: the core that it is, and whether it polls a task. Through it a future finds its runtime. A
//! thread-local, set for as long as a core works. Any other thread has none, and code that needs one documents what
//! happens then.

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
    /// The core's own: also what tells this core from one of another server.
    timers: Arc<CoreTimers>,
    delay: Arc<dyn RunDelay>,
    polling: Cell<bool>,
}

/// Says how long tasks wait for a core at present.
pub(crate) trait RunDelay: Send + Sync {
    fn run_delay(&self) -> Nanos;
}

/// Where a thread is that asks about a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerLocation {
    /// On another thread.
    OtherThread,
    /// On that core, which runs a task.
    InTask,
    /// On that core, which will look at its queue next.
    InLoop,
}

/// Makes this thread a core until the guard goes.
pub(crate) fn enter(core: usize, timers: Arc<CoreTimers>, delay: Arc<dyn RunDelay>) -> EnterGuard {
    let current = Rc::new(CoreContext { core, timers, delay, polling: Cell::new(false) });
    let _ = CURRENT.try_with(|place| place.replace(Some(Rc::clone(&current))));
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

/// The current core, taken out of the thread-local before anyone else's code runs.
fn current() -> Option<Rc<CoreContext>> {
    // During a thread's end there is none.
    CURRENT.try_with(|place| place.borrow().clone()).ok().flatten()
}

/// The timers of the core that polls the caller; `None` for code that is not part of a task.
pub(crate) fn timers() -> Option<Arc<CoreTimers>> {
    current().filter(|current| current.polling.get()).map(|current| Arc::clone(&current.timers))
}

/// The number of the core that polls the caller; `None` for code that is not part of a task.
pub(crate) fn core() -> Option<usize> {
    current().filter(|current| current.polling.get()).map(|current| current.core)
}

/// Time that a task which waits now will wait for a core afterwards, if things stay as they are. Nothing for code that
/// is not part of a task, which keeps its thread while it waits.
pub(crate) fn run_delay() -> Nanos {
    current().filter(|current| current.polling.get()).map_or(Nanos::ZERO, |current| current.delay.run_delay())
}

/// Where the caller is, seen from the core that has these timers.
pub(crate) fn caller_location(timers: &Arc<CoreTimers>) -> CallerLocation {
    match current() {
        Some(current) if !Arc::ptr_eq(&current.timers, timers) => CallerLocation::OtherThread,
        Some(current) if current.polling.get() => CallerLocation::InTask,
        Some(_) => CallerLocation::InLoop,
        None => CallerLocation::OtherThread,
    }
}
