//! Events of a tier's run. Never here: what follows from them.

use leeward_core::server::{Feedback, Outcome};
use leeward_core::units::Time;

/// A thread, by its number.
pub(super) type ThreadId = u32;
/// A request under way, by its slot.
pub(super) type JobId = u32;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A request reaches the tier.
    Arrive(JobId),
    /// A response reaches its client.
    Completed(JobId),
    /// A response or a drop reaches its client, with what the controller says.
    ClientReply(JobId, Outcome, Feedback),
    /// A client hears of a credit.
    Credit(u32, Feedback),
    /// The server hears how many requests a client holds back.
    Demand(u32, u32),
    /// A client's timer goes off.
    Timer(u32),
    /// The controller's period is over.
    Control,
    /// News of a call reach the tier.
    Reply(Reply),
    /// Something is due on a CPU; the number tells an overtaken event from the valid one.
    Cpu(u32, u32),
    /// A poller of a front sees what has come.
    FoundAtFront(u32),
    /// A poller of links sees what has come.
    FoundAtLinks(u32),
    /// A thread has polled for long enough: its poll of this number.
    PollTimeout(ThreadId, u32),
    /// The policy wants to be asked; the number tells an overtaken event from the valid one.
    AskPolicy(u32),
    /// The policy's period is over.
    Tick,
    /// The measured part begins.
    WarmedUp,
    /// A window of the time series ends.
    Window,
}

/// A call as it was made: the first time, or again at another copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallAttempt {
    /// The request that the call is of.
    pub(super) job: JobId,
    /// Life of the request's slot, which others may have had since.
    pub(super) generation: u32,
    /// The call's number among the request's.
    pub(super) call: u16,
    /// Leaf that is asked.
    pub(super) leaf: u16,
    /// Whether the call was made before.
    pub(super) number: AttemptNumber,
}

/// Whether a call was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptNumber {
    First,
    Second,
}

/// News of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) attempt: CallAttempt,
    /// When the call left.
    pub(super) sent_at: Time,
    /// Receiver.
    pub(super) receiver: ReplyReceiver,
    pub(super) kind: ReplyKind,
}

/// Content of the news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The leaf has answered.
    Result,
    /// The leaf has not begun the call and won't.
    Rejected,
    /// Nothing has come for so long that a second call is worth while. No message: a timer of the receiver's.
    HedgeTimeout,
}

/// Receiver of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyReceiver {
    /// The response threads of these links.
    Links(u16),
    /// A helper that waits for this reply alone.
    Helper(ThreadId),
    /// The thread that has the request, over its own connections.
    Own(ThreadId),
}
