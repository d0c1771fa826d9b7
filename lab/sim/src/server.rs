//! The server: cores that each have a packet queue and a run queue, run to completion, and steal.
//! Contains the order and cost of a core's steps. Does not contain admission, which is the
//! controller's fast half.

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

/// Maximum number of explicit credits per control tick, in every simulator.
///
/// It is far above the number that a controller sends per round trip, and far below one that would
/// stall the run.
pub(crate) const WAKES_PER_TICK: usize = 256;

/// A message that a core has yet to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutgoingMessage {
    /// An explicit credit.
    Credit(u32, Feedback),
    /// The rejection of a request.
    Rejection(u32, RequestId),
    /// A response that waits for others of its session.
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
    /// Idle: takes any work.
    Idle,
    /// Waking up from sleep.
    Waking,
    /// Receiving and parsing a message.
    Receiving(Packet),
    /// Executing a request and sending its response; if an application has locks, one step of
    /// either.
    Executing(Task),
    /// Spinning since this time on a lock that another request holds.
    Spinning(Time),
    /// Sending this many outgoing entries, in this many messages.
    Sending(usize, u64),
    /// Working off the cost of an earlier step.
    Settling,
}

/// Maximum number of entries sent per step, even for larger batches: messages are coalesced by
/// comparing all pairs.
const MAX_SEND_BATCH: usize = 256;

/// A core.
pub(crate) struct Core {
    pub(crate) activity: Activity,
    /// Messages that wait to be sent.
    pub(crate) outgoing: VecDeque<OutgoingMessage>,
    /// CPU time of rejections built while the core was busy; its next step pays for it.
    pub(crate) debt: Nanos,
    /// Number of messages that it may still take before its tasks.
    batch_left: u32,
    /// Messages read together with the last received one.
    read_packets: VecDeque<Packet>,
    /// Time since which the outgoing messages are held.
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

/// A step that a core has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepStart {
    /// End of the step.
    pub(crate) end: Time,
    /// Beginning of the execution, if the step executes a request.
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
    /// Whether an idle core steals by itself. Off if the scheduler controls stealing.
    steals: bool,
    idle: u128,
    /// Number of cores that are being woken for work.
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

    /// The core to take work just queued on `home`: `home` if idle, else any idle core.
    pub(crate) fn idle_core(&self, home: usize) -> Option<usize> {
        if self.idle == 0 {
            None
        } else if self.idle >> home & 1 == 1 {
            Some(home)
        } else {
            Some(self.idle.trailing_zeros() as usize)
        }
    }

    /// Whether more entries wait than cores are being woken.
    pub(crate) fn has_unserved_work(&self) -> bool {
        self.queues.waiting() > self.waking
    }

    /// Whether a core is idle while work waits that it could do.
    pub(crate) fn idles_despite_work(&self) -> bool {
        self.idle != 0 && self.has_unserved_work()
    }

    /// Whether `core` is idle.
    pub(crate) fn is_idle(&self, core: usize) -> bool {
        self.idle >> core & 1 == 1
    }

    /// Begins to wake an idle core.
    pub(crate) fn begin_wake(&mut self, core: usize) {
        self.idle &= !(1u128 << core);
        self.waking += 1;
        self.cores[core].activity = Activity::Waking;
        self.queues.begin_wake(core);
    }

    /// Ends the wake-up of a core.
    pub(crate) fn end_wake(&mut self, core: usize, now: Time) {
        self.waking -= 1;
        self.queues.end_wake(core, now);
    }

    /// CPU time that the receiving core spends to admit a request.
    pub(crate) fn cost_of_admission(&self) -> Nanos {
        self.costs.spawn
    }

    /// CPU time of a request's own receiving and spawning, before its execution.
    pub(crate) fn cost_of_entering(&self) -> Nanos {
        self.costs.receive + self.costs.spawn
    }

    /// CPU time of building a rejection, without sending it.
    pub(crate) fn cost_of_rejection(&self) -> Nanos {
        self.costs.reject
    }

    /// CPU time of sending a single message.
    pub(crate) fn cost_of_sending(&self) -> Nanos {
        self.costs.send
    }

    /// CPU time of receiving a single message.
    pub(crate) fn cost_of_receiving(&self) -> Nanos {
        self.costs.receive
    }

    /// Begins the next step of a free core, after `owed`, the rest of its last step's cost.
    /// `length` returns the time for which a request keeps the core. Returns `None` if there is
    /// nothing to do: the core idles.
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
        let execution_start_time = match activity {
            Activity::Executing(task) => Some(Time(until.0 - length(task.request).0)),
            _ => None,
        };
        Some(StepStart { end: until, execution_start: execution_start_time })
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
        // The core finishes a batch of messages once begun; the batch's rejections leave together.
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

    /// Number of messages for the first `count` outgoing entries: entries of one session share a
    /// message.
    fn coalesced(&self, core: usize, count: usize) -> u64 {
        let outgoing = &self.cores[core].outgoing;
        let first_of_its_session = |index: &usize| {
            let session = outgoing[*index].session();
            !outgoing.iter().take(*index).any(|earlier| earlier.session() == session)
        };
        (0..count).filter(first_of_its_session).count() as u64
    }
}
