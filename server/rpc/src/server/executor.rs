//! Execution of admitted calls on a core: inline, or as tasks whose handles stay with their
//! connection.

use super::async_handler::{AsyncHandler, OwnedRequest};
use super::handler::{Handler, HandlerError, Request};
use super::protocol::{Call, CallOutcome, CallRef, CompletedCall, Rpc};
use leeward_core::units::Time;
use leeward_engine::{ConnectionId, Handle};
use leeward_runtime::budget;
use leeward_runtime::tasks::{Spawner, TaskHandle, TaskPanic};
use leeward_session::server::Permit;
use leeward_threading::ArrivalRing;
use std::sync::Arc;

/// Executes calls; each core has its own value.
pub(crate) trait CallExecutor: Sized + Send + 'static {
    /// Whether calls run as tasks.
    const HAS_TASKS: bool;
    /// Whether threads outside the engine execute the calls.
    const IS_EXTERNAL: bool = false;

    /// Records the arrival of a request at `at`, rejected or not.
    fn on_arrival(&self, _at: Time) {}

    /// Makes an admitted call of connection `to` a task of core `home`, if calls run as tasks.
    ///
    /// The call holds the task then. The connection keeps the permit beside the task's handle.
    fn spawn(&self, call: &mut Call, home: usize, to: ConnectionId) -> Option<(Permit, TaskHandle)>;

    /// Executes a call inline.
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError>;
}

/// Executes calls inline.
pub(super) struct InlineExecutor<H>(Arc<H>);

impl<H> InlineExecutor<H> {
    pub(super) fn new(handler: &Arc<H>) -> Self {
        InlineExecutor(Arc::clone(handler))
    }
}

impl<H: Handler> CallExecutor for InlineExecutor<H> {
    const HAS_TASKS: bool = false;

    fn spawn(&self, _: &mut Call, _: usize, _: ConnectionId) -> Option<(Permit, TaskHandle)> {
        None
    }

    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        self.0.call(request, reply)
    }
}

/// Leaves the calls to threads that take them from the engine's queue: a tier's.
pub(crate) struct ExternalExecutor {
    /// Ring that records arrivals for a threading policy, if there is one.
    pub(crate) arrivals: Option<Arc<ArrivalRing>>,
}

impl CallExecutor for ExternalExecutor {
    const HAS_TASKS: bool = false;
    const IS_EXTERNAL: bool = true;

    fn on_arrival(&self, at: Time) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.record(at);
        }
    }

    fn spawn(&self, _: &mut Call, _: usize, _: ConnectionId) -> Option<(Permit, TaskHandle)> {
        None
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), HandlerError> {
        // No thread of the engine executes calls here.
        Err(HandlerError::UnknownMethod)
    }
}

/// Executes calls as tasks. An admitted call is a task from the start, so its connection has the
/// handle wherever the task runs.
pub(super) struct TaskExecutor<H: AsyncHandler> {
    spawner: Spawner,
    context: Arc<TaskContext<H>>,
}

/// Shared state of a core's tasks. Each core has its own, because every task counts a reference.
struct TaskContext<H: AsyncHandler> {
    handler: Arc<H>,
    handle: Handle<Rpc<TaskExecutor<H>>>,
}

impl<H: AsyncHandler> TaskExecutor<H> {
    pub(super) fn new(handle: &Handle<Rpc<TaskExecutor<H>>>, handler: &Arc<H>) -> Self {
        let shared = TaskContext { handler: Arc::clone(handler), handle: handle.clone() };
        TaskExecutor { spawner: Spawner::new(handle.shared()), context: Arc::new(shared) }
    }
}

impl<H: AsyncHandler> CallExecutor for TaskExecutor<H> {
    const HAS_TASKS: bool = true;

    fn spawn(&self, call: &mut Call, core: usize, to: ConnectionId) -> Option<(Permit, TaskHandle)> {
        let permit = call.call_ref.become_task()?;
        let (request, payload) = (permit.request(), std::mem::take(&mut call.payload));
        let (method, budget, peer) = (call.method, call.budget, call.peer.take());
        let owned = OwnedRequest { method, payload, arrival: permit.arrival(), budget, peer };
        let context = Arc::clone(&self.context);
        let future = budget::scope(call.queue_budget, async move { context.handler.call(owned).await });
        let context = Arc::clone(&self.context);
        let on_end = move |outcome: Result<Result<Vec<u8>, HandlerError>, TaskPanic>| {
            let (outcome, reply) = match outcome {
                Ok(Ok(reply)) => (Ok(()), reply),
                Ok(Err(failed)) => (Err(failed), Vec::new()),
                Err(TaskPanic) => (Err(HandlerError::panicked()), Vec::new()),
            };
            let executed = CallOutcome::Executed { outcome, reply };
            context.handle.finish(
                core,
                to,
                CompletedCall { call_ref: CallRef::Task(request), outcome: executed, spare: Vec::new() },
            );
        };
        let (task, handle) = self.spawner.spawn(future, on_end);
        call.task = Some(task);
        Some((permit, handle))
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), HandlerError> {
        // Every call of this core has a task.
        Err(HandlerError::UnknownMethod)
    }
}
