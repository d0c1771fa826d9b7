//! One call as its caller sees it: what may be said about it, the future, the result.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_channel::oneshot;
use leeward_control::units::{Nanos, Priority};

use super::call_error::{CallError, Effect};
use super::handle::{Command, Shared};

/// What a call may be given besides its argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    pub(super) priority: Option<Priority>,
    pub(super) budget: Option<Nanos>,
    pub(super) timeout: Option<Nanos>,
}

impl CallOptions {
    /// The client's time-out, no budget, a priority by chance.
    pub fn new() -> Self {
        CallOptions::default()
    }

    /// How important it is. Without it each call gets one of the 128 by chance, as DAGOR does.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Queueing delay that the call may cause in all, its wait at this client included: the server learns what is left.
    #[must_use]
    pub fn budget(mut self, budget: Nanos) -> Self {
        self.budget = Some(budget);
        self
    }

    /// How long the caller waits in all, instead of the client's own time-out.
    #[must_use]
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// A result, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The result.
    pub payload: Vec<u8>,
    /// From when the call was made to when its answer was here: all that the caller waits for, but for its own wake-up.
    pub latency: Nanos,
    /// The part of it from when the call left to now: the network and the server.
    pub round_trip: Nanos,
    /// The server's part of that.
    pub sojourn: Nanos,
    /// Which replica answered, counted in the order in which they were given to the builder.
    pub replica: usize,
    /// How often the call had been rejected elsewhere before.
    pub retries: u32,
}

/// How a call ends.
pub(super) type Outcome = Result<Response, CallError>;

/// A call under way. Works in any executor. The call is made already: this only waits for its end. Dropping it cancels
/// the call: a place in the queue is free at once, an answer that comes later is discarded.
#[must_use = "dropping it cancels the call"]
pub struct ResponseFuture {
    state: State,
}

enum State {
    UnderWay { number: u64, answer: oneshot::Receiver<Outcome>, shared: Arc<Shared> },
    Refused(Option<CallError>),
}

impl ResponseFuture {
    pub(super) fn new(number: u64, answer: oneshot::Receiver<Outcome>, shared: Arc<Shared>) -> Self {
        ResponseFuture { state: State::UnderWay { number, answer, shared } }
    }

    /// A call that ends before it has begun.
    pub(super) fn refused(error: CallError) -> Self {
        ResponseFuture { state: State::Refused(Some(error)) }
    }
}

impl Future for ResponseFuture {
    type Output = Outcome;

    /// Polled again after it is ready it says [`CallError::ShutDown`].
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut self.state {
            // Without an answer the client's thread has ended.
            State::UnderWay { answer, .. } => {
                ready!(Pin::new(answer).poll(context)).unwrap_or(Err(CallError::ShutDown { effect: Effect::Possible }))
            }
            State::Refused(error) => Err(error.take().unwrap_or(CallError::ShutDown { effect: Effect::Excluded })),
        };
        self.state = State::Refused(None);
        Poll::Ready(outcome)
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let State::UnderWay { number, answer, shared } = &mut self.state
            && matches!(answer.try_recv(), Ok(None))
        {
            shared.inbox.say(Command::Cancel(*number));
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::UnderWay { number, .. } => write!(f, "ResponseFuture({number})"),
            State::Refused(error) => write!(f, "ResponseFuture({error:?})"),
        }
    }
}
