//! Threads of a tier: the step, state and slot of each. Does not contain CPU scheduling (`cpus`).

use super::event::{CallAttempt, JobId, Reply, ReplyReceiver, ThreadId};
use super::jobs::CallTiming;
use leeward_core::units::Nanos;
use leeward_threading::{LeftoverWork, Role, Setup, Tasks, roles};

/// Next step of a thread that has finished computing or wakes up.
#[derive(Clone, Copy, Debug)]
pub(super) enum ThreadStep {
    /// Polls for work.
    Poll,
    /// Sleeps, unless a message has arrived since its last poll found nothing.
    TrySleep,
    /// A request was received.
    Received(JobId),
    /// A request was pushed to the queue.
    Pushed(JobId),
    /// A request begins.
    Begin(JobId),
    /// A request has computed up to its calls.
    Begun(JobId),
    /// This call of a request was sent.
    Sent(JobId, u16),
    /// All calls were sent, over the thread's own connections.
    Gather(JobId),
    /// A reply was received over the thread's own connections.
    Gathered(Reply),
    /// The second attempt of a call was sent, for the waiting request.
    Resent(CallAttempt, CallTiming, ReplyReceiver),
    /// The request waits for its helpers.
    Join(JobId),
    /// The helper of this call is woken.
    Fork(JobId, u16),
    /// A helper begins this call.
    HelperBegin(JobId, u16),
    /// A helper's call was sent.
    HelperSent(JobId, u16),
    /// A helper waits for the reply.
    HelperWait(JobId),
    /// A helper has received the reply.
    HelperReceived(JobId),
    /// A helper has no call.
    HelperIdle,
    /// A response thread has received a reply or a hedge time-out.
    Replied(Reply),
    /// A request has computed after its replies.
    Resumed(JobId),
    /// The response was sent.
    Responded(JobId),
    /// The rejection was sent.
    Rejected(JobId),
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// On a CPU or waiting for one.
    Busy,
    /// Asleep at a front.
    AsleepAtFront,
    /// Asleep at links.
    AsleepAtLinks,
    /// Asleep at the queue.
    AsleepAtQueue,
    /// Polling a front.
    PollingFront,
    /// Polling links.
    PollingLinks,
    /// Asleep with a request.
    Blocked,
    /// Without a slot.
    Parked,
}

/// Next action of a thread.
pub(super) enum ThreadAction {
    /// Compute for this time, then take the step.
    Compute(Nanos, ThreadStep),
    /// Sleep, and take the step after the wake-up.
    Sleep(ThreadState, ThreadStep),
    /// Poll until something is found.
    Poll(ThreadState),
}

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) step: ThreadStep,
    pub(super) state: ThreadState,
    /// Slot in the plan of `epoch`.
    pub(super) slot: Option<usize>,
    pub(super) epoch: u32,
    /// Whether the thread was woken to wait for messages, and must promote a successor before other
    /// work.
    pub(super) is_leader: bool,
    /// Number of its poll, to tell an outdated time-out from the current one.
    pub(super) poll_id: u32,
    /// Whether the reply that this helper waits for has arrived.
    pub(super) reply_arrived: bool,
    /// Number of unread replies on its own connections for which no request waits.
    pub(super) late_replies: u32,
}

impl Thread {
    pub(super) fn new(first_step: ThreadStep) -> Self {
        Thread {
            step: first_step,
            state: ThreadState::Parked,
            slot: None,
            epoch: 0,
            is_leader: false,
            poll_id: 0,
            reply_arrived: false,
            late_replies: 0,
        }
    }
}

/// A slot of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) role: Role,
    /// Index among the slots with the same network role.
    pub(super) share: u16,
    pub(super) holder: Option<ThreadId>,
}

/// The setup in force, and the threads in its slots.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) epoch: u32,
    pub(super) slots: Vec<Slot>,
}

impl Plan {
    /// Creates a plan with free slots.
    pub(super) fn new(setup: Setup, leftover: LeftoverWork, epoch: u32) -> Self {
        let (mut fronts, mut links) = (0, 0);
        let slot = |assigned: Role| {
            let count = if assigned.tasks.contains(Tasks::RECEIVE) { Some(&mut fronts) } else { None };
            let count = if assigned.tasks.contains(Tasks::AWAIT_LEAVES) { Some(&mut links) } else { count };
            let share = count.map_or(0, |count| {
                *count += 1;
                *count - 1
            });
            Slot { role: assigned, share, holder: None }
        };
        Plan { setup, epoch, slots: roles(&setup, leftover).map(slot).collect() }
    }

    /// Number of slots with a role.
    pub(super) fn count(&self, role: Tasks) -> usize {
        self.slots.iter().filter(|slot| slot.role.tasks.contains(role)).count()
    }

    /// First free slot.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.holder.is_none())
    }
}
