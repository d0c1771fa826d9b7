//! How a core executes what it has admitted: in one go, or as tasks whose handles stay with their connection.

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

/// Execution of calls, with a value per core.
pub(crate) trait CallExecutor: Sized + Send + 'static {
    /// Whether calls are tasks.
    const HAS_TASKS: bool;
    /// Whether calls are executed by threads that are not the engine's.
    const IS_EXTERNAL: bool = false;

    /// A request that came at `at` was read, whatever becomes of it.
    fn on_arrival(&self, _at: Time) {}

    /// Makes a task of an admitted call of the connection `to` on the core `home`, if that is how calls are executed. The
    /// call has the task then, and the connection keeps the ticket beside the task's handle.
    fn spawn(&self, call: &mut Call, home: usize, to: ConnectionId) -> Option<(Permit, TaskHandle)>;

    /// Executes a call in one go.
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError>;
}

/// In one go.
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

/// By threads that take the calls out of the engine's queue: a tier's.
pub(crate) struct ExternalExecutor {
    /// Where arrivals are noted, if anybody wants to know.
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
        // The engine has no thread that would ask for this.
        Err(HandlerError::UnknownMethod)
    }
}

/// As tasks: an admitted call is one from the start, so that its connection has the handle wherever it will run.
pub(super) struct TaskExecutor<H: AsyncHandler> {
    spawner: Spawner,
    context: Arc<TaskContext<H>>,
}

/// Home of a core's tasks, which they hold on to. A home per core, because references are counted with every task.
struct TaskContext<H: AsyncHandler> {
    handler: Arc<H>,
    handle: Handle<Rpc<TaskExecutor<H>>>,
}

impl<H: AsyncHandler> TaskExecutor<H> {
    pub(super) fn new(handle: &Handle<Rpc<TaskExecutor<H>>>, handler: &Arc<H>) -> Self {
        let home = TaskContext { handler: Arc::clone(handler), handle: handle.clone() };
        TaskExecutor { spawner: Spawner::new(handle.shared()), context: Arc::new(home) }
    }
}

impl<H: AsyncHandler> CallExecutor for TaskExecutor<H> {
    const HAS_TASKS: bool = true;

    fn spawn(&self, call: &mut Call, core: usize, to: ConnectionId) -> Option<(Permit, TaskHandle)> {
        let ticket = call.call_ref.become_task()?;
        let (request, payload) = (ticket.request(), std::mem::take(&mut call.payload));
        let (method, budget, peer) = (call.method, call.budget, call.peer.take());
        let owned = OwnedRequest { method, payload, arrival: ticket.arrival(), budget, peer };
        let home = Arc::clone(&self.context);
        let future = budget::scope(call.queue_budget, async move { home.handler.call(owned).await });
        let home = Arc::clone(&self.context);
        let ended = move |outcome: Result<Result<Vec<u8>, HandlerError>, TaskPanic>| {
            let (outcome, reply) = match outcome {
                Ok(Ok(reply)) => (Ok(()), reply),
                Ok(Err(failed)) => (Err(failed), Vec::new()),
                Err(TaskPanic) => (Err(HandlerError::panicked()), Vec::new()),
            };
            let end = CallOutcome::Executed { outcome, reply };
            home.handle.finish(
                core,
                to,
                CompletedCall { call_ref: CallRef::Task(request), outcome: end, spare: Vec::new() },
            );
        };
        let (task, handle) = self.spawner.spawn(future, ended);
        call.task = Some(task);
        Some((ticket, handle))
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), HandlerError> {
        // Every call of this core has a task.
        Err(HandlerError::UnknownMethod)
    }
}
