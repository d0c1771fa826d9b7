//! Tasks: futures that the cores run. A task begins as part of a job: when the job's turn comes, a core polls it. When
//! its waker is called, the task enters the run queue of the core that it last ran on, with the time of that. So
//! waiting by its own will (a sleep, another task, a thread) is no queueing delay, and waiting for a core is.
//!
//! There is no way for a handler to spawn one: a task stands for an admitted request, which is what bounds them.

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
    /// Something that runs to its end at once.
    Job(J),
    /// A task that has been woken.
    Task(ReadyTask),
}

/// A task that can begin, or go on. Dropped, it takes its future with it.
pub struct ReadyTask(Runnable<TaskMetadata>);

/// Tag of a task: where it belongs.
struct TaskMetadata {
    scheduler: Arc<dyn TaskScheduler>,
    /// The core that it last ran on.
    core: AtomicUsize,
}

/// Takes tasks that have been woken: the cores' queues ([`crate::cores::Shared`]), whatever their jobs are.
pub trait TaskScheduler: Send + Sync {
    /// Queues a task that last ran on `core`, from any thread, and wakes a core for it if one sleeps. `running`: it was woken
    /// while it ran, which is over now, on that very core.
    fn schedule(&self, core: usize, task: ReadyTask, running: bool);
}

/// The future of a task has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPanic;

/// A task's owner. Dropped, it cancels the task: wherever that is, its future goes the next time that a core has it, or
/// at the end of the poll that is under way.
#[must_use = "dropping it cancels the task"]
pub struct TaskHandle {
    _task: Task<(), TaskMetadata>,
}

/// Makes tasks. One per core: tasks count their references to it, and one for all would go back and forth between them.
pub struct Spawner {
    scheduler: Arc<dyn TaskScheduler>,
}

/// A count of references of its own, that of one [`Spawner`]'s tasks.
struct SpawnerRef<H>(Arc<H>);

impl<H: TaskScheduler> TaskScheduler for SpawnerRef<H> {
    fn schedule(&self, core: usize, task: ReadyTask, running: bool) {
        self.0.schedule(core, task, running);
    }
}

impl Spawner {
    /// For tasks on these cores.
    pub fn new<H: TaskScheduler + 'static>(cores: &Arc<H>) -> Self {
        Spawner { scheduler: Arc::new(SpawnerRef(Arc::clone(cores))) }
    }

    /// Makes a task that runs `future` and hands its outcome to `ended`; it begins when a [`Network::run`] returns it. If
    /// it is cancelled first, `ended` is dropped uncalled. A panic of the future, on its way or when it is dropped, is the
    /// task's alone.
    ///
    /// [`Network::run`]: crate::Network::run
    pub fn spawn<F, E>(&self, future: F, ended: E) -> (ReadyTask, TaskHandle)
    where
        F: Future + Send + 'static,
        F::Output: Send,
        E: FnOnce(Result<F::Output, TaskPanic>) + Send + 'static,
    {
        let tag = TaskMetadata { scheduler: Arc::clone(&self.scheduler), core: AtomicUsize::new(0) };
        let mut unbegun = UnpolledFuture(Some(future));
        let run = |_: &TaskMetadata| async move {
            let future = pin!(unbegun.0.take());
            let mut contained = CatchUnwind(future);
            let outcome = poll_fn(|context| contained.poll(context)).await;
            // Before the future goes: whatever happens there, the outcome is known.
            ended(outcome);
        };
        let (runnable, task) = async_task::Builder::new().metadata(tag).spawn(run, WithInfo(schedule));
        (ReadyTask(runnable), TaskHandle { _task: task })
    }
}

/// Captures nothing, which makes wake-ups cheaper: what it needs is in the tag.
fn schedule(runnable: Runnable<TaskMetadata>, info: ScheduleInfo) {
    let tag = runnable.metadata();
    let core = tag.core.load(Ordering::Relaxed);
    // The task may be gone by the time the queue has it.
    let host = Arc::clone(&tag.scheduler);
    host.schedule(core, ReadyTask(runnable), info.woken_while_running);
}

/// A future that has not been polled yet; see [`Contained`] for why this matters.
struct UnpolledFuture<F>(Option<F>);

impl<F> Drop for UnpolledFuture<F> {
    fn drop(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.0.take())));
    }
}

/// Keeps the panics of a future. Where it is dropped no panic may come out: the task object would end the process.
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
    /// Polls it on `core`.
    pub(crate) fn run(self, core: usize) {
        self.0.metadata().core.store(core, Ordering::Relaxed);
        // What panics is contained; this is for what should not be able to.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.run()));
    }
}

/// The number of the core that polls the task whose code calls this; `None` for code that is no task's.
pub fn current_core() -> Option<usize> {
    context::core()
}

/// Lets the core do something else first: the tasks that wait, and now and then its network.
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
