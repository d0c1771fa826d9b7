//! How a core executes what it has admitted: in one go, or as tasks that the connection's core keeps the handles of.

use super::async_handler::{AsyncHandler, OwnedRequest};
use super::handler::{Failed, Handler, Request};
use super::shared::{Common, Executed, Job};
use crate::wire::RequestId;
use leeward_control::units::Time;
use leeward_runtime::budget;
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::{Panicked, Spawner, TaskHandle, Work};
use std::sync::Arc;

/// One value per core.
pub(super) trait Execute: Send + 'static {
    /// Whether answers come as messages on the connection's own core too.
    const TASKS: bool;

    /// Queues an admitted call on its home core.
    fn admit(&mut self, job: Job, now: Time);

    /// Executes a call that was queued as a job.
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed>;

    /// A call of the connection in `slot` has its answer.
    fn settled(&mut self, _slot: u32, _request: RequestId) {}

    /// The connection in `slot` has gone.
    fn closed(&mut self, _slot: u32) {}
}

/// In one go.
pub(super) struct Plain<H> {
    pub(super) handler: Arc<H>,
    pub(super) shared: Arc<Shared<Job>>,
}

impl<H: Handler> Execute for Plain<H> {
    const TASKS: bool = false;

    fn admit(&mut self, job: Job, now: Time) {
        self.shared.queues.push(job.home, now, Work::Job(job));
    }

    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
        self.handler.call(request, reply)
    }
}

/// As tasks: an admitted call is one from the start, so that its connection's core has the handle wherever it will run.
pub(super) struct Tasks<H> {
    shared: Arc<Shared<Job>>,
    spawner: Spawner,
    home: Arc<Home<H>>,
    /// The tasks of each connection, by its slot; as many as it has admitted calls unanswered, which is few.
    live: Vec<Vec<(RequestId, TaskHandle)>>,
}

/// What a core's tasks hold on to. One per core: references are counted with every task.
struct Home<H> {
    handler: Arc<H>,
    common: Arc<Common>,
}

impl<H: AsyncHandler> Tasks<H> {
    pub(super) fn new(shared: &Arc<Shared<Job>>, common: &Arc<Common>, handler: &Arc<H>) -> Self {
        let home = Home { handler: Arc::clone(handler), common: Arc::clone(common) };
        let (shared, spawner) = (Arc::clone(shared), Spawner::new(shared));
        Tasks { shared, spawner, home: Arc::new(home), live: Vec::new() }
    }
}

impl<H: AsyncHandler> Execute for Tasks<H> {
    const TASKS: bool = true;

    fn admit(&mut self, mut job: Job, now: Time) {
        let (core, ticket) = (job.home, job.ticket);
        let payload = std::mem::take(&mut job.payload);
        let request = OwnedRequest { method: job.call, payload, arrived: ticket.arrived, budget: job.budget };
        let home = Arc::clone(&self.home);
        let future = budget::scope(job.may_spend, async move { home.handler.call(request).await });
        let home = Arc::clone(&self.home);
        let ended = move |outcome: Result<Result<Vec<u8>, Failed>, Panicked>| {
            let (outcome, reply) = match outcome {
                Ok(Ok(reply)) => (Ok(()), reply),
                Ok(Err(failed)) => (Err(failed), Vec::new()),
                Err(Panicked) => (Err(Failed::panicked()), Vec::new()),
            };
            home.common.finish(core, Executed { ticket, dropped: None, outcome, reply, spare: Vec::new() });
        };
        let (task, handle) = self.spawner.spawn(future, ended);
        job.task = Some(task);
        self.shared.queues.push(core, now, Work::Job(job));
        let slot = ticket.connection.slot as usize;
        if self.live.len() <= slot {
            self.live.resize_with(slot + 1, Vec::new);
        }
        self.live[slot].push((ticket.request, handle));
    }

    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), Failed> {
        // Every job of this core has a task.
        Err(Failed::UnknownMethod)
    }

    fn settled(&mut self, slot: u32, request: RequestId) {
        if let Some(tasks) = self.live.get_mut(slot as usize)
            && let Some(place) = tasks.iter().position(|(of, _)| *of == request)
        {
            drop(tasks.swap_remove(place));
        }
    }

    fn closed(&mut self, slot: u32) {
        if let Some(tasks) = self.live.get_mut(slot as usize) {
            *tasks = Vec::new();
        }
    }
}
