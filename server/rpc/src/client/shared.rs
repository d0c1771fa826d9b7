//! State that callers share with the client's thread, and their commands to it.

use futures_channel::oneshot;
use leeward_core::units::Time;
use leeward_runtime::Clock;

use super::call::{CallOptions, Outcome};
use super::counters::Counters;
use super::inbox::Inbox;
use crate::wire::Method;

/// State that callers share with the client's thread.
pub(super) struct SharedState {
    pub(super) inbox: Inbox<Command, mio::Waker>,
    pub(super) counters: Counters,
    pub(super) clock: Clock,
}

/// Command from a caller to the client's thread.
pub(super) enum Command {
    Call { number: u64, call: Box<NewCall> },
    Cancel(u64),
}

/// A call as its caller submitted it.
pub(super) struct NewCall {
    pub(super) method: Method,
    pub(super) payload: Vec<u8>,
    pub(super) options: CallOptions,
    pub(super) made: Time,
    pub(super) deadline: Time,
    pub(super) answer: oneshot::Sender<Outcome>,
}
