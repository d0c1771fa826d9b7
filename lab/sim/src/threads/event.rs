//! Events of a tier's run. Does not contain their effects.

use leeward_core::server::{Feedback, Outcome};
use leeward_core::units::Time;

/// Number of a thread.
pub(super) type ThreadId = u32;
/// Slot of a request in flight.
pub(super) type JobId = u32;

/// An event of the run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A request reaches the tier.
    Arrive(JobId),
    /// A response reaches its client.
    Completed(JobId),
    /// A response or rejection reaches its client, with the controller's feedback.
    ClientReply(JobId, Outcome, Feedback),
    /// An explicit credit reaches its client.
    Credit(u32, Feedback),
    /// A client's demand message reaches the server.
    Demand(u32, u32),
    /// A client's timer fires.
    Timer(u32),
    /// The controller's slow half runs.
    Control,
    /// A reply, or the time-out of a call, reaches the tier.
    Reply(Reply),
    /// Event of a CPU; the number tells an outdated event from the current one.
    Cpu(u32, u32),
    /// A poller of a front finds a request.
    FoundAtFront(u32),
    /// A poller of links finds a reply.
    FoundAtLinks(u32),
    /// A thread's poll of this number reaches its time limit.
    PollTimeout(ThreadId, u32),
    /// The policy's own timer fires; the number tells an outdated event from the current one.
    AskPolicy(u32),
    /// The policy's period ends.
    Tick,
    /// The measurement begins.
    WarmedUp,
    /// An observed window ends.
    Observe,
    /// A window of the time series ends.
    Window,
}

/// One attempt of a call: the first, or a second one at another copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallAttempt {
    /// Request that makes the call.
    pub(super) job: JobId,
    /// Generation of the request's slot, to detect reuse.
    pub(super) generation: u32,
    /// Index of the call in the request.
    pub(super) call: u16,
    /// Leaf that is called.
    pub(super) leaf: u16,
    /// First or second attempt.
    pub(super) number: AttemptNumber,
}

/// Number of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptNumber {
    First,
    Second,
}

/// A leaf's reply to a call, or a call's hedge time-out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) attempt: CallAttempt,
    /// Time at which the call left.
    pub(super) sent_at: Time,
    /// Receiver of the reply.
    pub(super) receiver: ReplyReceiver,
    pub(super) kind: ReplyKind,
}

/// Kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The leaf's result.
    Result,
    /// The leaf rejected the call without beginning it.
    Rejected,
    /// The call takes so long that a second attempt is worthwhile. A timer of the receiver, not a
    /// message.
    HedgeTimeout,
}

/// Receiver of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyReceiver {
    /// The response threads of these links.
    Links(u16),
    /// A helper thread that waits only for this reply.
    Helper(ThreadId),
    /// The request's thread, over its own connections.
    Own(ThreadId),
}
