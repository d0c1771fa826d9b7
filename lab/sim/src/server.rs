//! The server: cores with a packet queue and a run queue each, run to completion, stealing. What a core does next and
//! what it costs; never what is admitted (that is the controller's fast half).

mod handover;
mod sockets;

use crate::config::{Costs, QueueOrder, ServerModel};
use crate::event::Packet;
use crate::requests::RequestId;
use crate::server_queues::{Queues, Task};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};
use sockets::SocketState;
use std::collections::VecDeque;

/// Explicit credit messages that one control tick may cause, in every simulator. Far above what any controller asks for in a round
/// trip, far below what would stall the run.
pub(crate) const WAKES_PER_TICK: usize = 256;

/// A message that a core has yet to send besides responses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutgoingMessage {
    /// An explicit credit message.
    Credit(u32, Feedback),
    /// A rejected request's drop.
    Rejection(u32, RequestId),
    /// An answer that waits for others of its session.
    Response(u32, RequestId),
}

impl OutgoingMessage {
    fn session(&self) -> u32 {
        match self {
            OutgoingMessage::Credit(session, _)
            | OutgoingMessage::Rejection(session, _)
            | OutgoingMessage::Response(session, _) => *session,
        }
    }
}

/// Activity of a core.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activity {
    /// Nothing: it would take anything.
    Idle,
    /// Nothing yet: it has slept, and is being woken.
    Waking,
    /// Receiving and parsing a message.
    Receiving(Packet),
    /// Executing a request and sending its response; where an application has locks, one step of either.
    Executing(Task),
    /// Burning time since then, until a lock that somebody else holds is this request's.
    Spinning(Time),
    /// Sending the first so many of what is outgoing, in so many messages.
    Sending(usize, u64),
    /// Finishing what an earlier step has cost.
    Settling,
}

/// No more than this are sent in one step, however large a batch is: which share a message is found by comparing all
/// with all.
const MAX_SEND_BATCH: usize = 256;

/// A core.
pub(crate) struct Core {
    pub(crate) activity: Activity,
    /// Credits and drops that wait to be sent.
    pub(crate) outgoing: VecDeque<OutgoingMessage>,
    /// CPU time of drops that were built while it was at something else, which its next step begins with.
    pub(crate) debt: Nanos,
    /// Messages that it may still take before it turns to its tasks.
    batch_left: u32,
    /// Messages that it has read together with the one that it received last.
    read_packets: VecDeque<Packet>,
    /// When it first saw what is outgoing now.
    held_since: Option<Time>,
}

impl Core {
    fn new() -> Self {
        Core {
            activity: Activity::Idle,
            outgoing: VecDeque::new(),
            debt: Nanos::ZERO,
            batch_left: 0,
            read_packets: VecDeque::new(),
            held_since: None,
        }
    }
}

/// Step that a core has begun, with its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepStart {
    /// The end of the new activity.
    pub(crate) end: Time,
    /// The beginning of the execution, if that is what it is.
    pub(crate) execution_start: Option<Time>,
}

/// All cores and their queues.
pub(crate) struct Server {
    pub(crate) cores: Vec<Core>,
    pub(crate) queues: Queues,
    costs: Costs,
    sockets: Option<SocketState>,
    batch: u32,
    order: QueueOrder,
    /// A core without work takes another's at once. Off where the scheduler says when it finds some.
    steals: bool,
    idle: u128,
    /// Cores that have work and are still being woken for it.
    waking: usize,
}

impl Server {
    pub(crate) fn new(model: &ServerModel) -> Self {
        Server {
            cores: (0..model.cores).map(|_| Core::new()).collect(),
            queues: Queues::new(model.cores as usize),
            costs: model.costs,
            sockets: model.sockets.map(SocketState::new),
            batch: model.batch,
            order: model.order,
            steals: true,
            idle: u128::MAX >> (128 - model.cores),
            waking: 0,
        }
    }

    /// The core that should look after work that has just been queued on `home`: itself if idle, else any idle one.
    pub(crate) fn idle_core(&self, home: usize) -> Option<usize> {
        if self.idle == 0 {
            None
        } else if self.idle >> home & 1 == 1 {
            Some(home)
        } else {
            Some(self.idle.trailing_zeros() as usize)
        }
    }

    /// Whether something waits for which neither a core works nor one is being woken.
    pub(crate) fn has_unserved_work(&self) -> bool {
        self.queues.waiting() > self.waking
    }

    /// Whether a core idles though something waits that it could do.
    pub(crate) fn idles_despite_work(&self) -> bool {
        self.idle != 0 && self.has_unserved_work()
    }

    /// Whether `core` has nothing to do.
    pub(crate) fn is_idle(&self, core: usize) -> bool {
        self.idle >> core & 1 == 1
    }

    /// An idle core is being woken: it begins when that is over.
    pub(crate) fn begin_wake(&mut self, core: usize) {
        self.idle &= !(1u128 << core);
        self.waking += 1;
        self.cores[core].activity = Activity::Waking;
        self.queues.begin_wake(core);
    }

    /// An idle core has been woken.
    pub(crate) fn end_wake(&mut self, core: usize, now: Time) {
        self.waking -= 1;
        self.queues.end_wake(core, now);
    }

    /// CPU time of the receiver for what follows from receiving a message.
    pub(crate) fn cost_of_admission(&self) -> Nanos {
        self.costs.spawn
    }

    /// CPU time that a request's own receiving and spawning takes before it can be executed.
    pub(crate) fn cost_of_entering(&self) -> Nanos {
        self.costs.receive + self.costs.spawn
    }

    /// CPU time of building a drop besides sending it.
    pub(crate) fn cost_of_rejection(&self) -> Nanos {
        self.costs.reject
    }

    /// CPU time of sending a message by itself.
    pub(crate) fn cost_of_sending(&self) -> Nanos {
        self.costs.send
    }

    /// CPU time of receiving a message by itself.
    pub(crate) fn cost_of_receiving(&self) -> Nanos {
        self.costs.receive
    }

    /// A free core begins its next activity at `now` after `owed`, what its last step has still to cost. `length` tells
    /// for how long a request that takes its turn keeps the core. `None` if there is nothing to do: the core idles.
    pub(crate) fn begin(
        &mut self,
        core: usize,
        now: Time,
        owed: Nanos,
        length: impl Fn(RequestId) -> Nanos,
    ) -> Option<StepStart> {
        let start = now + owed;
        let (activity, until) = self.choose(core, now, start, &length);
        self.cores[core].activity = activity;
        let bit = 1u128 << core;
        if let Activity::Idle = activity {
            self.idle |= bit;
            return None;
        }
        self.idle &= !bit;
        let executes_from = match activity {
            Activity::Executing(task) => Some(Time(until.0 - length(task.request).0)),
            _ => None,
        };
        Some(StepStart { end: until, execution_start: executes_from })
    }

    fn choose(
        &mut self,
        core: usize,
        now: Time,
        start: Time,
        length: &impl Fn(RequestId) -> Nanos,
    ) -> (Activity, Time) {
        let costs = self.costs;
        let execute = |task: Task, from: Time| (Activity::Executing(task), from + length(task.request));
        if let Some(packet) = self.cores[core].read_packets.pop_front() {
            return (Activity::Receiving(packet), start + self.cost_of_batched_read());
        }
        // A batch of messages, once begun, is finished; its drops leave together.
        if self.cores[core].batch_left > 0 {
            if let Some(packet) = self.queues.pop_packet(core) {
                self.cores[core].batch_left -= 1;
                return (self.receive(core, packet), start + costs.receive);
            }
            self.cores[core].batch_left = 0;
        }
        let outgoing = self.sendable(core, now);
        if outgoing > 0 {
            let messages = self.coalesced(core, outgoing);
            return (Activity::Sending(outgoing, messages), start + self.cost_of_writes(messages));
        }
        if self.order == QueueOrder::TasksFirst
            && let Some(task) = self.queues.pop_task(core)
        {
            return execute(task, start);
        }
        if let Some(packet) = self.queues.pop_packet(core) {
            self.cores[core].batch_left = self.batch - 1;
            return (self.receive(core, packet), start + costs.receive);
        }
        if let Some(task) = self.queues.pop_task(core) {
            return execute(task, start);
        }
        if self.steals
            && let Some(task) = self.queues.steal_task(core)
        {
            return execute(task, start + costs.steal);
        }
        if self.steals
            && let Some(packet) = self.queues.steal_packet(core)
        {
            return (self.receive(core, packet), start + costs.steal + costs.receive);
        }
        if start > now { (Activity::Settling, start) } else { (Activity::Idle, now) }
    }

    /// Messages that the first `count` outgoing take: those of one session share one.
    fn coalesced(&self, core: usize, count: usize) -> u64 {
        let outgoing = &self.cores[core].outgoing;
        let first_of_its_session = |index: &usize| {
            let session = outgoing[*index].session();
            !outgoing.iter().take(*index).any(|earlier| earlier.session() == session)
        };
        (0..count).filter(first_of_its_session).count() as u64
    }
}
