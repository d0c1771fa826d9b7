//! How a core executes what it has admitted: in one go, or as tasks whose handles stay with their connection.

use super::async_handler::{AsyncHandler, OwnedRequest};
use super::handler::{Failed, Handler, Request};
use super::protocol::{Call, Done, End, Rpc, Whose};
use leeward_core::units::Time;
use leeward_engine::{ConnectionId, Handle};
use leeward_runtime::budget;
use leeward_runtime::tasks::{Panicked, Spawner, TaskHandle};
use leeward_session::server::Ticket;
use leeward_threading::ArrivalRing;
use std::sync::Arc;

/// Execution of calls, with a value per core.
pub(crate) trait Execute: Sized + Send + 'static {
    /// Whether calls are tasks.
    const TASKS: bool;
    /// Whether calls are executed by threads that are not the engine's.
    const ELSEWHERE: bool = false;

    /// A request that came at `at` was read, whatever becomes of it.
    fn arrived(&self, _at: Time) {}

    /// Makes a task of an admitted call of the connection `to` on the core `home`, if that is how calls are executed. The
    /// call has the task then, and the connection keeps the ticket beside the task's handle.
    fn begin(&self, call: &mut Call, home: usize, to: ConnectionId) -> Option<(Ticket, TaskHandle)>;

    /// Executes a call in one go.
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed>;
}

/// In one go.
pub(super) struct Plain<H>(Arc<H>);

impl<H> Plain<H> {
    pub(super) fn new(handler: &Arc<H>) -> Self {
        Plain(Arc::clone(handler))
    }
}

impl<H: Handler> Execute for Plain<H> {
    const TASKS: bool = false;

    fn begin(&self, _: &mut Call, _: usize, _: ConnectionId) -> Option<(Ticket, TaskHandle)> {
        None
    }

    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
        self.0.call(request, reply)
    }
}

/// By threads that take the calls out of the engine's queue: a tier's.
pub(crate) struct Elsewhere {
    /// Where arrivals are noted, if anybody wants to know.
    pub(crate) arrivals: Option<Arc<ArrivalRing>>,
}

impl Execute for Elsewhere {
    const TASKS: bool = false;
    const ELSEWHERE: bool = true;

    fn arrived(&self, at: Time) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.record(at);
        }
    }

    fn begin(&self, _: &mut Call, _: usize, _: ConnectionId) -> Option<(Ticket, TaskHandle)> {
        None
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), Failed> {
        // The engine has no thread that would ask for this.
        Err(Failed::UnknownMethod)
    }
}

/// As tasks: an admitted call is one from the start, so that its connection has the handle wherever it will run.
pub(super) struct Tasks<H: AsyncHandler> {
    spawner: Spawner,
    home: Arc<Home<H>>,
}

/// Home of a core's tasks, which they hold on to. A home per core, because references are counted with every task.
struct Home<H: AsyncHandler> {
    handler: Arc<H>,
    handle: Handle<Rpc<Tasks<H>>>,
}

impl<H: AsyncHandler> Tasks<H> {
    pub(super) fn new(handle: &Handle<Rpc<Tasks<H>>>, handler: &Arc<H>) -> Self {
        let home = Home { handler: Arc::clone(handler), handle: handle.clone() };
        Tasks { spawner: Spawner::new(handle.shared()), home: Arc::new(home) }
    }
}

impl<H: AsyncHandler> Execute for Tasks<H> {
    const TASKS: bool = true;

    fn begin(&self, call: &mut Call, core: usize, to: ConnectionId) -> Option<(Ticket, TaskHandle)> {
        let ticket = call.whose.become_task()?;
        let (request, payload) = (ticket.request(), std::mem::take(&mut call.payload));
        let (method, budget, peer) = (call.method, call.budget, call.peer.take());
        let owned = OwnedRequest { method, payload, arrived: ticket.arrived(), budget, peer };
        let home = Arc::clone(&self.home);
        let future = budget::scope(call.may_spend, async move { home.handler.call(owned).await });
        let home = Arc::clone(&self.home);
        let ended = move |outcome: Result<Result<Vec<u8>, Failed>, Panicked>| {
            let (outcome, reply) = match outcome {
                Ok(Ok(reply)) => (Ok(()), reply),
                Ok(Err(failed)) => (Err(failed), Vec::new()),
                Err(Panicked) => (Err(Failed::panicked()), Vec::new()),
            };
            let end = End::Executed { outcome, reply };
            home.handle.finish(core, to, Done { whose: Whose::Task(request), end, spare: Vec::new() });
        };
        let (task, handle) = self.spawner.spawn(future, ended);
        call.task = Some(task);
        Some((ticket, handle))
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), Failed> {
        // Every call of this core has a task.
        Err(Failed::UnknownMethod)
    }
}
