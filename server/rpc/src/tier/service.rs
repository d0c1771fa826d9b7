//! The seam between a tier and its service: what to ask of the leaves, and what to make of what came. Sans I/O, so every threading model
//! can run it. Never here: threads, sockets, how replies are gathered.

use super::calls::{CallList, Entry};
use super::replies::{ReplyList, ReplyState};
use crate::server::{HandlerError, Request};
use crate::wire::{FailureCode, Method, RejectCode};
use leeward_core::units::Nanos;

/// A service that answers by asking leaves: one code for all threading models, sync and async ones (µTune §4 has an interface for each).
///
/// Neither method may block: an async model runs it on threads that others wait for.
///
/// ```
/// use leeward_rpc::server::{Failed, Request};
/// use leeward_rpc::tier::{Calls, Enough, MidTier, Replies, Reply, Step};
///
/// /// Asks every leaf the same and adds the lengths of what they say.
/// struct Lengths;
///
/// impl MidTier for Lengths {
///     type State = ();
///
///     fn begin(&self, request: &Request<'_>, (): &mut (), calls: &mut Calls<'_>, _: &mut Vec<u8>) -> Result<Step, Failed> {
///         for leaf in calls.leaves() {
///             calls.call(leaf, request.method, |argument| argument.extend_from_slice(request.payload));
///         }
///         Ok(Step::Gather(Enough::All))
///     }
///
///     fn resume(&self, (): &mut (), came: &Replies<'_>, _: &mut Calls<'_>, reply: &mut Vec<u8>) -> Result<Step, Failed> {
///         let length = |reply| if let Reply::Result(bytes) = reply { bytes.len() as u64 } else { 0 };
///         reply.extend(came.iter().map(length).sum::<u64>().to_le_bytes());
///         Ok(Step::Done)
///     }
/// }
/// ```
pub trait MidTier: Send + Sync + 'static {
    /// State of a request between its steps. It is used again by later requests, so that its buffers are: [`MidTier::begin`] meets it as
    /// the last request left it.
    type State: Default + Send + 'static;

    /// Names the leaves that a request will ask, as far as that can be told before its work: where leaves hand out credits, the request
    /// begins only when each of them lets a call go. Calls of others wait for their credits after the work. Default: all leaves.
    fn required_leaves(&self, _: &Request<'_>, needs: &mut RequiredLeaves<'_>) {
        needs.all();
    }

    /// Begins a request: says what to ask, and how much of it is needed. The calls leave when this returns. `reply` is empty.
    ///
    /// # Errors
    /// What goes to the client as a failure; calls that were made do not leave. A panic counts as one.
    fn begin(
        &self,
        request: &Request<'_>,
        state: &mut Self::State,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError>;

    /// Goes on with a request whose replies have come, or whose time for them is over. `reply` is as the last step left it. Further
    /// calls are a further gather.
    ///
    /// # Errors
    /// What goes to the client as a failure. A panic counts as one.
    fn resume(
        &self,
        state: &mut Self::State,
        came: &Replies<'_>,
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError>;
}

/// How a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The calls are to be made, and the request goes on when this has come.
    Gather(GatherCondition),
    /// The reply stands.
    Done,
}

/// How much of what was asked for is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherCondition {
    /// A reply or a failure of every call, by the leaves' time-out at the latest.
    All,
    /// So many results, or the end of every call.
    Quorum(u16),
    /// All that has come after so long.
    Within(Nanos),
    /// Everything, or after so long as many results as are good enough.
    GoodEnough {
        /// Results that are good enough, in percent of the calls.
        percent: u8,
        /// How long everything is waited for.
        within: Nanos,
    },
}

impl GatherCondition {
    /// Results after which a request goes on, of so many calls.
    pub(super) fn wanted(self, calls: usize) -> usize {
        match self {
            GatherCondition::Quorum(results) => usize::from(results).min(calls),
            GatherCondition::All | GatherCondition::Within(_) | GatherCondition::GoodEnough { .. } => usize::MAX,
        }
    }

    /// Results that are good enough in the end, of so many calls.
    pub(super) fn good_enough(self, calls: usize) -> usize {
        match self {
            GatherCondition::GoodEnough { percent, .. } => (calls * usize::from(percent.min(100))).div_ceil(100),
            other => other.wanted(calls),
        }
    }

    /// How long a request waits at most, where leaves have so long.
    pub(super) fn timeout(self, timeout: Nanos) -> Nanos {
        if let GatherCondition::Within(span) = self { span.min(timeout) } else { timeout }
    }
}

/// A leaf, by its place in the list of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafId(pub u16);

/// Leaves that a request needs.
#[derive(Debug)]
pub struct RequiredLeaves<'a> {
    pub(super) required: &'a mut Vec<LeafId>,
    pub(super) leaf_count: u16,
}

impl RequiredLeaves<'_> {
    /// Leaves that there are.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.leaf_count).map(LeafId)
    }

    /// All leaves.
    pub fn all(&mut self) {
        (0..self.leaf_count).for_each(|leaf| self.leaf(LeafId(leaf)));
    }

    /// This leaf, for a call. One that there is not is not needed.
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
    /// All leaves.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.leaf_count).map(LeafId)
    }

    /// Calls `method` of a leaf. `write` appends the argument. A call of a leaf that there is not, or beyond [`CALLS_MAX`], ends as
    /// [`LeafError::Refused`].
    pub fn call(&mut self, leaf: LeafId, method: Method, write: impl FnOnce(&mut Vec<u8>)) -> CallBuilder<'_> {
        CallBuilder(self.list.push(leaf, method, write))
    }
}

/// A call that was made, for what else is to be said of it.
#[derive(Debug)]
pub struct CallBuilder<'a>(Option<&'a mut Entry>);

impl CallBuilder<'_> {
    /// The call changes nothing: it may be executed twice, and it may be cancelled when enough others have come.
    pub fn repeatable(mut self) -> Self {
        if let Some(call) = &mut self.0 {
            call.is_repeatable = true;
        }
        self
    }

    /// `leaf` has the same: a call that takes long, or is rejected, is made there, too. So this makes the call repeatable, as
    /// [`Asked::repeatable`] does.
    pub fn or(mut self, leaf: LeafId) -> Self {
        if let Some(call) = &mut self.0 {
            (call.is_repeatable, call.alternate) = (true, Some(leaf));
        }
        self
    }
}

/// Calls of one step, at most.
pub const CALLS_MAX: usize = 4_096;

/// Replies to the calls of one step, one per call and in the calls' order.
#[derive(Debug)]
pub struct Replies<'a>(pub(super) &'a ReplyList);

impl<'a> Replies<'a> {
    /// How many calls there were.
    pub fn len(&self) -> usize {
        self.0.replies.len()
    }

    /// Whether there was no call.
    pub fn is_empty(&self) -> bool {
        self.0.replies.is_empty()
    }

    /// Reply to the call at this place; [`Reply::Missing`] if there was none.
    pub fn get(&self, place: usize) -> Reply<'a> {
        match self.0.replies.get(place) {
            Some(ReplyState::Result { from, to }) => Reply::Result(&self.0.bytes[*from..*to]),
            Some(ReplyState::Failed(error)) => Reply::Failed(*error),
            Some(ReplyState::Missing) | None => Reply::Missing,
        }
    }

    /// All of them, in the order of calls.
    pub fn iter(&self) -> impl Iterator<Item = Reply<'a>> {
        (0..self.len()).map(|place| self.get(place))
    }
}

/// End of a call, as its request sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The leaf's result.
    Result(&'a [u8]),
    /// The call has ended without one.
    Failed(LeafError),
    /// Nothing has come, and the request goes on without.
    Missing,
}

/// Why a call has ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// The leaf has rejected it.
    #[error("the leaf has rejected the call: {0:?}")]
    Rejected(RejectCode),
    /// The leaf has executed it in vain.
    #[error("the leaf has no result: {0:?}")]
    Failed(FailureCode),
    /// The call has not left: it waited too long for permission, or too many did.
    #[error("the call has not left")]
    NotSent,
    /// There is no connection, or it was lost.
    #[error("no connection to the leaf")]
    Disconnected,
    /// The argument is longer than the leaf accepts, there is no such leaf, or there are too many calls.
    #[error("a call that can't be made")]
    Invalid,
}
