//! Threads of a tier: what each does now, where it waits, and which slot of the setup it has. How they share CPUs is in `cpus`.

use super::event::{JobId, Leg, Reply, Route, ThreadId};
use super::jobs::Draw;
use leeward_core::units::Nanos;
use leeward_threading::{Duty, Owed, Roles, Setup, slots};

/// Next step of a thread that has computed what it had to, or that wakes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doing {
    /// Looks for what is next.
    Turn,
    /// Its look was empty: it sleeps unless something has come since.
    Doze,
    /// A request has been received.
    Received(JobId),
    /// A request has been pushed to the queue.
    Pushed(JobId),
    /// A request is to begin.
    Begins(JobId),
    /// A request has computed what comes before its calls.
    Begun(JobId),
    /// This call of a request has left.
    Sent(JobId, u16),
    /// All calls have left, over its own connections.
    Gathers(JobId),
    /// A reply has been received over its own connections.
    Gathered(Reply),
    /// A call has been sent again, on behalf of a request that waits there for its end.
    Resent(Leg, Draw, Route),
    /// The helpers are waited for.
    Joins(JobId),
    /// The helper of this call is woken.
    Forks(JobId, u16),
    /// A helper begins with this call.
    Helps(JobId, u16),
    /// A helper's call has left.
    HelperSent(JobId, u16),
    /// A helper waits for the reply.
    HelperWaits(JobId),
    /// A helper has received the reply.
    HelperReceived(JobId),
    /// A helper has no call.
    HelperRests,
    /// A response thread has received a reply, or seen that there is none yet.
    Replied(Reply),
    /// A request has computed what comes after its replies.
    Resumed(JobId),
    /// The answer has left.
    Answered(JobId),
    /// The drop of a request that the controller refuses has left.
    Refused(JobId),
}

/// Where a thread is while it does not compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On a CPU or waiting for one.
    Busy,
    /// Asleep at a front.
    AtFront,
    /// Asleep at links.
    AtLinks,
    /// Asleep at the queue.
    AtQueue,
    /// Polling a front.
    PollsFront,
    /// Polling links.
    PollsLinks,
    /// Asleep with a request.
    Held,
    /// Without a slot.
    Parked,
}

/// Next state of a thread.
pub(super) enum Next {
    /// Computes for so long, then goes on.
    Compute(Nanos, Doing),
    /// Sleeps, and goes on when it is woken.
    Sleep(Place, Doing),
    /// Polls until it finds something.
    Poll(Place),
}

/// A thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) doing: Doing,
    pub(super) place: Place,
    /// Its slot in the plan of `epoch`.
    pub(super) slot: Option<usize>,
    pub(super) epoch: u32,
    /// The thread was woken to wait for messages, and must name a successor before it does something else.
    pub(super) leads: bool,
    /// Number of its poll, so that an older poll's end means nothing.
    pub(super) poll: u32,
    /// A reply has come that this helper waits for.
    pub(super) came: bool,
    /// Replies over its own connections that no request waits for any more, and that it has not received.
    pub(super) late: u32,
}

impl Thread {
    pub(super) fn new(doing: Doing) -> Self {
        Thread { doing, place: Place::Parked, slot: None, epoch: 0, leads: false, poll: 0, came: false, late: 0 }
    }
}

/// A slot of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) duty: Duty,
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
    pub(super) fn new(setup: Setup, owed: Owed, epoch: u32) -> Self {
        let (mut fronts, mut links) = (0, 0);
        let slot = |duty: Duty| {
            let count = if duty.roles.contain(Roles::FRONT) { Some(&mut fronts) } else { None };
            let count = if duty.roles.contain(Roles::LEAVES) { Some(&mut links) } else { count };
            let share = count.map_or(0, |count| {
                *count += 1;
                *count - 1
            });
            Slot { duty, share, holder: None }
        };
        Plan { setup, epoch, slots: slots(&setup, owed).map(slot).collect() }
    }

    /// Slots with a role.
    pub(super) fn count(&self, role: Roles) -> usize {
        self.slots.iter().filter(|slot| slot.duty.roles.contain(role)).count()
    }

    /// The first free slot.
    pub(super) fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.holder.is_none())
    }
}
