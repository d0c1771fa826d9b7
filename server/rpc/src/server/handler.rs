//! Handler of requests: an application's code.

use crate::wire::{Budget, Method};
use leeward_core::units::Time;
use leeward_engine::PeerIdentity;
use leeward_runtime::locks::Congested;

/// A request as its handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which procedure.
    pub method: Method,
    /// Its argument.
    pub payload: &'a [u8],
    /// When its packet was read, on the server's clock.
    pub arrival: Time,
    /// Queueing delay that it might still spend when it arrived. [`leeward_runtime::budget::current`] says what is left.
    pub budget: Budget,
    /// Identity that the client has proven by its certificate; `None` where none is asked for.
    pub peer: Option<&'a PeerIdentity>,
}

/// A request that was executed without a result, or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// There is no such procedure.
    UnknownMethod,
    /// The handler says no; the words go to the client.
    Message(String),
    /// The request was refused a lock that it could not wait for. That is no failure but a drop, like one before it was
    /// begun: the client may try elsewhere. The handler must undo its changes so far.
    Congested(Congested),
}

impl From<Congested> for HandlerError {
    fn from(congested: Congested) -> Self {
        HandlerError::Congested(congested)
    }
}

impl HandlerError {
    pub(crate) fn panicked() -> Self {
        HandlerError::Message("the handler has panicked".into())
    }
}

/// Executes requests, on any core: shared by all of them.
pub trait Handler: Send + Sync + 'static {
    /// Executes `request` and appends the result to `reply`, which is empty.
    ///
    /// # Errors
    /// What goes to the client as a failure. A panic counts as one.
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError>;
}

impl<F> Handler for F
where
    F: Fn(&Request<'_>, &mut Vec<u8>) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        self(request, reply)
    }
}
