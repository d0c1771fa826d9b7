//! Interface between a tier and its service: calls to the leaves, and the use of their replies.
//!
//! It does no I/O, so every threading model can run a service. Does not contain threads, sockets,
//! or the gathering of replies.

use super::calls::{CallList, Entry};
use super::replies::{ReplyList, ReplyState};
use crate::server::{HandlerError, Request};
use crate::wire::{FailureCode, Method, RejectCode};
use leeward_core::units::Nanos;

/// A service that calls leaves before it responds: one code for sync and async threading models
/// (µTune §4 has an interface for each).
///
/// No method may block: an async model runs it on threads that other requests wait for.
///
/// ```
/// use leeward_rpc::server::{HandlerError, Request};
/// use leeward_rpc::tier::{Calls, GatherCondition, MidTier, Replies, Reply, Step};
///
/// /// Sends every leaf the same argument, and adds the lengths of the results.
/// struct Lengths;
///
/// impl MidTier for Lengths {
///     type State = ();
///
///     fn begin(
///         &self,
///         request: &Request<'_>,
///         (): &mut (),
///         calls: &mut Calls<'_>,
///         _: &mut Vec<u8>,
///     ) -> Result<Step, HandlerError> {
///         for leaf in calls.leaves() {
///             let write = |argument: &mut Vec<u8>| argument.extend_from_slice(request.payload);
///             calls.call(leaf, request.method, write);
///         }
///         Ok(Step::Gather(GatherCondition::All))
///     }
///
///     fn resume(
///         &self,
///         (): &mut (),
///         replies: &Replies<'_>,
///         _: &mut Calls<'_>,
///         reply: &mut Vec<u8>,
///     ) -> Result<Step, HandlerError> {
///         let length = |reply| match reply {
///             Reply::Result(bytes) => bytes.len() as u64,
///             Reply::Failed(_) | Reply::Missing => 0,
///         };
///         reply.extend(replies.iter().map(length).sum::<u64>().to_le_bytes());
///         Ok(Step::Done)
///     }
/// }
/// ```
pub trait MidTier: Send + Sync + 'static {
    /// State of a request between its steps.
    ///
    /// Later requests reuse the state with its buffers: [`MidTier::begin`] gets it as the last
    /// request left it.
    type State: Default + Send + 'static;

    /// Names the leaves that a request will call, as far as they are known before its work.
    /// Default: all leaves.
    ///
    /// If leaves grant credits, the request begins only when each of these leaves accepts a call.
    /// Calls to other leaves wait for credit after the work.
    fn required_leaves(&self, _: &Request<'_>, needs: &mut RequiredLeaves<'_>) {
        needs.all();
    }

    /// Begins a request: makes calls, and returns the replies that it needs. `reply` is empty.
    ///
    /// The calls leave when this method returns.
    ///
    /// # Errors
    /// The client gets the error as a failure, and the calls do not leave. A panic counts as an
    /// error.
    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut Self::State,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError>;

    /// Continues a request after its replies have arrived, or the time for them is over.
    ///
    /// `reply` is as the last step left it. Further calls start a further gather.
    ///
    /// # Errors
    /// The client gets the error as a failure. A panic counts as an error.
    fn resume(
        &self,
        state: &mut Self::State,
        replies: &Replies<'_>,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError>;
}

/// Next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the calls, and continue when the condition holds.
    Gather(GatherCondition),
    /// The reply is complete.
    Done,
}

/// Replies that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherCondition {
    /// A reply or a failure of every call, at most for the leaves' timeout.
    All,
    /// As [`GatherCondition::All`], but where leaves are slow, a part of the results is worth an
    /// answer.
    ///
    /// A slow leaf that the request can do without limits nothing: it is called only if its credits
    /// permit the call at once, and the request waits for it briefly.
    AtLeast {
        /// Results that are worth an answer, in percent of the calls.
        percent: u8,
    },
    /// This number of results, or the end of every call.
    Quorum(u16),
    /// All replies that arrive within this time.
    Within(Nanos),
    /// All replies; after a time, a good-enough number of results.
    GoodEnough {
        /// Results that are good enough, in percent of the calls.
        percent: u8,
        /// Time for which the request waits for all replies.
        within: Nanos,
    },
}

impl GatherCondition {
    /// Results after which a request with `calls` calls continues.
    pub(super) fn wanted(self, calls: usize) -> usize {
        match self {
            GatherCondition::Quorum(results) => usize::from(results).min(calls),
            GatherCondition::All
            | GatherCondition::AtLeast { .. }
            | GatherCondition::Within(_)
            | GatherCondition::GoodEnough { .. } => usize::MAX,
        }
    }

    /// Results without which the replies to `calls` calls are incomplete.
    pub(super) fn complete(self, calls: usize) -> usize {
        self.wanted(calls).min(calls)
    }

    /// Results that suffice at the end, for `calls` calls.
    pub(super) fn good_enough(self, calls: usize) -> usize {
        match self {
            GatherCondition::GoodEnough { percent, .. } => part_of(calls, percent),
            other => other.wanted(calls),
        }
    }

    /// Number of calls that a request with `calls` calls can do without.
    pub(super) fn spare(self, calls: usize) -> usize {
        if let GatherCondition::AtLeast { percent } = self { calls - part_of(calls, percent) } else { 0 }
    }

    /// Longest wait of a request if the leaves' timeout is `timeout`.
    pub(super) fn timeout(self, timeout: Nanos) -> Nanos {
        if let GatherCondition::Within(span) = self { span.min(timeout) } else { timeout }
    }
}

/// This percentage of the calls, rounded up.
fn part_of(calls: usize, percent: u8) -> usize {
    (calls * usize::from(percent.min(100))).div_ceil(100)
}

/// Index of a leaf in the list of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafId(pub u16);

/// Leaves that a request needs.
#[derive(Debug)]
pub struct RequiredLeaves<'a> {
    pub(super) required: &'a mut Vec<LeafId>,
    pub(super) leaf_count: u16,
    /// Part of the leaves that is worth an answer, in percent.
    pub(super) percent: u8,
}

impl RequiredLeaves<'_> {
    /// All leaves of the tier.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.leaf_count).map(LeafId)
    }

    /// Requires all leaves.
    pub fn all(&mut self) {
        (0..self.leaf_count).for_each(|leaf| self.leaf(LeafId(leaf)));
    }

    /// Sets the part of the leaves that is worth an answer where others are slow, in percent: as
    /// [`GatherCondition::AtLeast`]. Default: all.
    pub fn at_least(&mut self, percent: u8) {
        self.percent = percent;
    }

    /// Number of leaves that the request can do without.
    pub(super) fn spare(&self) -> usize {
        GatherCondition::AtLeast { percent: self.percent }.spare(self.required.len())
    }

    /// Requires this leaf, for one call. Unknown leaves are ignored.
    pub fn leaf(&mut self, leaf: LeafId) {
        if leaf.0 < self.leaf_count && self.required.len() < CALLS_MAX {
            self.required.push(leaf);
        }
    }
}

/// Calls of one step.
#[derive(Debug)]
pub struct Calls<'a> {
    pub(super) list: &'a mut CallList,
    pub(super) leaf_count: u16,
}

impl Calls<'_> {
    /// All leaves of the tier.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.leaf_count).map(LeafId)
    }

    /// Calls `method` of a leaf; `write` appends the argument.
    ///
    /// A call to an unknown leaf, or beyond [`CALLS_MAX`], ends with [`LeafError::Invalid`].
    pub fn call(&mut self, leaf: LeafId, method: Method, write: impl FnOnce(&mut Vec<u8>)) -> CallBuilder<'_> {
        CallBuilder(self.list.push(leaf, method, write))
    }
}

/// A call that was made, for further settings.
#[derive(Debug)]
pub struct CallBuilder<'a>(Option<&'a mut Entry>);

impl CallBuilder<'_> {
    /// Marks the call as changing nothing: it may run twice, and the tier may cancel it when enough
    /// other replies have arrived.
    pub fn repeatable(mut self) -> Self {
        if let Some(call) = &mut self.0 {
            call.is_repeatable = true;
        }
        self
    }

    /// Names another leaf with the same data. The tier repeats the call there if it takes long or
    /// is rejected.
    ///
    /// The call becomes repeatable, as with [`CallBuilder::repeatable`].
    pub fn or(mut self, leaf: LeafId) -> Self {
        if let Some(call) = &mut self.0 {
            (call.is_repeatable, call.alternate) = (true, Some(leaf));
        }
        self
    }
}

/// Maximum number of calls of one step.
pub const CALLS_MAX: usize = 4_096;

/// Replies to the calls of one step, one per call and in the calls' order.
#[derive(Debug)]
pub struct Replies<'a>(pub(super) &'a ReplyList);

impl<'a> Replies<'a> {
    /// Number of calls.
    pub fn len(&self) -> usize {
        self.0.replies.len()
    }

    /// Whether there was no call.
    pub fn is_empty(&self) -> bool {
        self.0.replies.is_empty()
    }

    /// Reply to the call at this index; [`Reply::Missing`] if there was none.
    pub fn get(&self, index: usize) -> Reply<'a> {
        match self.0.replies.get(index) {
            Some(ReplyState::Result { from, to }) => Reply::Result(&self.0.bytes[*from..*to]),
            Some(ReplyState::Failed(error)) => Reply::Failed(*error),
            Some(ReplyState::Missing) | None => Reply::Missing,
        }
    }

    /// All replies, in the order of the calls.
    pub fn iter(&self) -> impl Iterator<Item = Reply<'a>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// Outcome of a call, as its request sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The leaf's result.
    Result(&'a [u8]),
    /// The call has ended without a result.
    Failed(LeafError),
    /// No reply has arrived, and the request continues without one.
    Missing,
}

/// Reason for a call without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// The leaf has rejected the call.
    #[error("the leaf has rejected the call: {0:?}")]
    Rejected(RejectCode),
    /// The leaf has executed the call without a result.
    #[error("the leaf has no result: {0:?}")]
    Failed(FailureCode),
    /// The call has not left: it waited too long for credit, or too many calls waited.
    #[error("the call was not sent")]
    NotSent,
    /// The connection is missing or was lost.
    #[error("no connection to the leaf")]
    Disconnected,
    /// The argument is longer than the leaf accepts, the leaf is unknown, or there are too many
    /// calls.
    #[error("the call can't be made")]
    Invalid,
}
