//! A call in flight as a future: waits for the outcome, and cancels the call when dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_channel::oneshot;

use super::call::Outcome;
use super::call_error::{CallError, Effect};
use super::shared::{Command, SharedState};

/// A call in flight, for any executor.
///
/// The call has been made already; the future only waits for its end. Dropping it cancels the call:
/// its slot in the queue is free at once, and a later response is discarded.
#[must_use = "dropping it cancels the call"]
pub struct ResponseFuture {
    state: State,
}

enum State {
    InFlight { number: u64, answer: oneshot::Receiver<Outcome>, shared: Arc<SharedState> },
    Rejected(Option<CallError>),
}

impl ResponseFuture {
    pub(super) fn new(number: u64, answer: oneshot::Receiver<Outcome>, shared: Arc<SharedState>) -> Self {
        ResponseFuture { state: State::InFlight { number, answer, shared } }
    }

    /// Creates the future of a call that ends before it has begun.
    pub(super) fn rejected(error: CallError) -> Self {
        ResponseFuture { state: State::Rejected(Some(error)) }
    }
}

impl Future for ResponseFuture {
    type Output = Outcome;

    /// A poll after the future was ready returns [`CallError::ShutDown`].
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut self.state {
            // Without an outcome, the client's thread has ended.
            State::InFlight { answer, .. } => {
                ready!(Pin::new(answer).poll(context)).unwrap_or(Err(CallError::ShutDown { effect: Effect::Possible }))
            }
            State::Rejected(error) => Err(error.take().unwrap_or(CallError::ShutDown { effect: Effect::Excluded })),
        };
        self.state = State::Rejected(None);
        Poll::Ready(outcome)
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let State::InFlight { number, answer, shared } = &mut self.state
            && matches!(answer.try_recv(), Ok(None))
        {
            shared.inbox.send(Command::Cancel(*number));
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::InFlight { number, .. } => write!(f, "ResponseFuture({number})"),
            State::Rejected(error) => write!(f, "ResponseFuture({error:?})"),
        }
    }
}
