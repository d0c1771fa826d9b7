//! Tasks: futures that the cores run. A task begins as part of a job, which a core polls when it is
//! dequeued. When its waker is called, the task enters the run queue of its last core, with the
//! current time. So its own waiting (a sleep, another task, a thread) is no queueing delay, and
//! waiting for a core is.
//!
//! A handler can't spawn a task: each task belongs to an admitted request, which bounds their
//! number.

use crate::context;
use async_task::{Runnable, ScheduleInfo, Task, WithInfo};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Entry of a run queue.
pub enum Work<J> {
    /// Work that runs to its end at once.
    Job(J),
    /// A woken task.
    Task(ReadyTask),
}

/// A task that can begin, or continue. Dropping it drops its future.
pub struct ReadyTask(Runnable<TaskMetadata>);

/// Metadata of a task: its scheduler and core.
struct TaskMetadata {
    scheduler: Arc<dyn TaskScheduler>,
    /// The core that it last ran on.
    core: AtomicUsize,
}

/// Takes woken tasks: the cores' queues ([`crate::cores::Shared`]), for any type of job.
pub trait TaskScheduler: Send + Sync {
    /// Queues a task that last ran on `core`, from any thread, and wakes a core for it if one
    /// sleeps. `running`: it was woken while it ran on that core, and that poll is over.
    fn schedule(&self, core: usize, task: ReadyTask, running: bool);
}

/// The future of a task has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPanic;

/// Owner of a task. Dropping it cancels the task. Its future is dropped the next time that a core
/// has the task, or at the end of the current poll.
#[must_use = "dropping it cancels the task"]
pub struct TaskHandle {
    _task: Task<(), TaskMetadata>,
}

/// Makes tasks. Use one per core: tasks count their references to it, and a shared count would move
/// between cores.
pub struct Spawner {
    scheduler: Arc<dyn TaskScheduler>,
}

/// A reference count of its own for the tasks of one [`Spawner`].
struct SpawnerRef<H>(Arc<H>);

impl<H: TaskScheduler> TaskScheduler for SpawnerRef<H> {
    fn schedule(&self, core: usize, task: ReadyTask, running: bool) {
        self.0.schedule(core, task, running);
    }
}

impl Spawner {
    /// Makes a spawner for tasks on these cores.
    pub fn new<H: TaskScheduler + 'static>(cores: &Arc<H>) -> Self {
        Spawner { scheduler: Arc::new(SpawnerRef(Arc::clone(cores))) }
    }

    /// Makes a task that runs `future` and passes its outcome to `ended`. The task begins when a
    /// [`Network::run`] returns it. If it is cancelled first, `ended` is dropped uncalled. A panic
    /// of the future, while it runs or is dropped, ends only the task.
    ///
    /// [`Network::run`]: crate::Network::run
    pub fn spawn<F, E>(&self, future: F, ended: E) -> (ReadyTask, TaskHandle)
    where
        F: Future + Send + 'static,
        F::Output: Send,
        E: FnOnce(Result<F::Output, TaskPanic>) + Send + 'static,
    {
        let metadata = TaskMetadata { scheduler: Arc::clone(&self.scheduler), core: AtomicUsize::new(0) };
        let mut unpolled = UnpolledFuture(Some(future));
        let run = |_: &TaskMetadata| async move {
            let future = pin!(unpolled.0.take());
            let mut guarded = CatchUnwind(future);
            let outcome = poll_fn(|context| guarded.poll(context)).await;
            // Called before the future is dropped: a panic there can't hide the outcome.
            ended(outcome);
        };
        let (runnable, task) = async_task::Builder::new().metadata(metadata).spawn(run, WithInfo(schedule));
        (ReadyTask(runnable), TaskHandle { _task: task })
    }
}

/// Captures nothing, which makes wake-ups cheaper. The metadata has the scheduler.
fn schedule(runnable: Runnable<TaskMetadata>, info: ScheduleInfo) {
    let metadata = runnable.metadata();
    let core = metadata.core.load(Ordering::Relaxed);
    // The task may be dropped as soon as the queue has it.
    let scheduler = Arc::clone(&metadata.scheduler);
    scheduler.schedule(core, ReadyTask(runnable), info.woken_while_running);
}

/// A future that was not polled yet; see [`CatchUnwind`] for the reason.
struct UnpolledFuture<F>(Option<F>);

impl<F> Drop for UnpolledFuture<F> {
    fn drop(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.0.take())));
    }
}

/// Catches the panics of a future. A panic while it is dropped would make the task object abort the
/// process.
struct CatchUnwind<'a, F>(Pin<&'a mut Option<F>>);

impl<F: Future> CatchUnwind<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, TaskPanic>> {
        let Some(future) = self.0.as_mut().as_pin_mut() else { return Poll::Ready(Err(TaskPanic)) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(TaskPanic)),
        }
    }
}

impl<F> Drop for CatchUnwind<'_, F> {
    fn drop(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.set(None)));
    }
}

impl ReadyTask {
    /// Polls the task on `core`.
    pub(crate) fn run(self, core: usize) {
        self.0.metadata().core.store(core, Ordering::Relaxed);
        // The future's panics are caught; this is a second safeguard.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.run()));
    }
}

/// Index of the core that polls the calling task; `None` for code outside of a task.
pub fn current_core() -> Option<usize> {
    context::core()
}

/// Lets the core run other tasks first, and its network now and then.
pub fn yield_now() -> impl Future<Output = ()> + Send + Sync {
    let mut yielded = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
