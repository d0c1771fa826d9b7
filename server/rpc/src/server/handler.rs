//! Handler of requests: an application's code.

use crate::wire::{Budget, Method};
use leeward_core::units::Time;
use leeward_engine::PeerIdentity;
use leeward_runtime::locks::Congested;

/// A request as its handler gets it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method to execute.
    pub method: Method,
    /// Argument.
    pub payload: &'a [u8],
    /// Time at which the server read the request's packet, on the server's clock.
    pub arrival: Time,
    /// Queueing delay that the request might still spend on arrival.
    /// [`leeward_runtime::budget::current`] returns the rest.
    pub budget: Budget,
    /// Identity that the client's certificate has proven; `None` if the server requires none.
    pub peer: Option<&'a PeerIdentity>,
}

/// Error of a request that was executed without a result, or aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// The method is unknown.
    UnknownMethod,
    /// The handler fails with a message to the client.
    Message(String),
    /// A lock rejected the request, which could not wait for it.
    ///
    /// The client gets a rejection, as before execution, and may try elsewhere. The handler must
    /// undo its changes so far.
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

/// Executes requests on any core; all cores share the handler.
pub trait Handler: Send + Sync + 'static {
    /// Executes `request` and appends the result to `reply`, which is empty.
    ///
    /// # Errors
    /// The client gets the error as a failure. A panic counts as an error.
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
