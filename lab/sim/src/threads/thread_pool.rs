//! Threads of a tier: what each does now, where it waits, and which slot of the setup it has. How they share CPUs is in `cpus`.

use super::event::{CallAttempt, JobId, Reply, ReplyReceiver, ThreadId};
use super::jobs::CallTiming;
use leeward_core::units::Nanos;
use leeward_threading::{LeftoverWork, Role, Setup, Tasks, roles};

/// Next step of a thread that has computed what it had to, or that wakes.
#[derive(Clone, Copy, Debug)]
pub(super) enum ThreadStep {
    /// Looks for what is next.
    Poll,
    /// Its look was empty: it sleeps unless something has come since.
    TrySleep,
    /// A request has been received.
    Received(JobId),
    /// A request has been pushed to the queue.
    Pushed(JobId),
    /// A request is to begin.
    Begin(JobId),
    /// A request has computed what comes before its calls.
    Begun(JobId),
    /// This call of a request has left.
    Sent(JobId, u16),
    /// All calls have left, over its own connections.
    Gather(JobId),
    /// A reply has been received over its own connections.
    Gathered(Reply),
    /// A call has been sent again, on behalf of a request that waits there for its end.
    Resent(CallAttempt, CallTiming, ReplyReceiver),
    /// The helpers are waited for.
    Join(JobId),
    /// The helper of this call is woken.
    Fork(JobId, u16),
    /// A helper begins with this call.
    HelperBegin(JobId, u16),
    /// A helper's call has left.
    HelperSent(JobId, u16),
    /// A helper waits for the reply.
    HelperWait(JobId),
    /// A helper has received the reply.
    HelperReceived(JobId),
    /// A helper has no call.
    HelperIdle,
    /// A response thread has received a reply, or seen that there is none yet.
    Replied(Reply),
    /// A request has computed what comes after its replies.
    Resumed(JobId),
    /// The answer has left.
    Responded(JobId),
    /// The drop of a request that the controller refuses has left.
    Rejected(JobId),
}

/// Where a thread is while it does not compute.
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

/// Next state of a thread.
pub(super) enum ThreadAction {
    /// Computes for so long, then goes on.
    Compute(Nanos, ThreadStep),
    /// Sleeps, and goes on when it is woken.
    Sleep(ThreadState, ThreadStep),
    /// Polls until it finds something.
    Poll(ThreadState),
}

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) step: ThreadStep,
    pub(super) state: ThreadState,
    /// Its slot in the plan of `epoch`.
    pub(super) slot: Option<usize>,
    pub(super) epoch: u32,
    /// The thread was woken to wait for messages, and must name a successor before it does something else.
    pub(super) is_leader: bool,
    /// Number of its poll, so that an older poll's end means nothing.
    pub(super) poll_id: u32,
    /// A reply has come that this helper waits for.
    pub(super) reply_arrived: bool,
    /// Replies over its own connections that no request waits for any more, and that it has not received.
    pub(super) late_replies: u32,
}

impl Thread {
    pub(super) fn new(doing: ThreadStep) -> Self {
        Thread {
            step: doing,
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
    /// Its number among those with the same role at the network.
    pub(super) share: u16,
    pub(super) holder: Option<ThreadId>,
}

/// The setup in force and who does what in it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) epoch: u32,
    pub(super) slots: Vec<Slot>,
}

impl Plan {
    /// A plan in which no slot is taken.
    pub(super) fn new(setup: Setup, owed: LeftoverWork, epoch: u32) -> Self {
        let (mut fronts, mut links) = (0, 0);
        let slot = |duty: Role| {
            let count = if duty.tasks.contains(Tasks::RECEIVE) { Some(&mut fronts) } else { None };
            let count = if duty.tasks.contains(Tasks::AWAIT_LEAVES) { Some(&mut links) } else { count };
            let share = count.map_or(0, |count| {
                *count += 1;
                *count - 1
            });
            Slot { role: duty, share, holder: None }
        };
        Plan { setup, epoch, slots: roles(&setup, owed).map(slot).collect() }
    }

    /// Slots with a role.
    pub(super) fn count(&self, role: Tasks) -> usize {
        self.slots.iter().filter(|slot| slot.role.tasks.contains(role)).count()
    }

    /// The first free slot.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.holder.is_none())
    }
}
