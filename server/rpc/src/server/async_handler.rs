//! Asynchronous handler of requests: an application's code as a future.

use super::handler::{HandlerError, Request};
use crate::wire::{Budget, Method};
use leeward_core::units::Time;
use leeward_engine::PeerIdentity;
use std::future::Future;
use std::sync::Arc;

/// A request as its asynchronous handler gets it, with an owned argument.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    /// Method to execute.
    pub method: Method,
    /// Argument. The handler may reuse the buffer for its result.
    pub payload: Vec<u8>,
    /// Time at which the server read the request's packet, on the server's clock.
    pub arrival: Time,
    /// Queueing delay that the request might still spend on arrival.
    /// [`leeward_runtime::budget::current`] returns the rest.
    pub budget: Budget,
    /// Identity that the client's certificate has proven; `None` if the server requires none.
    pub peer: Option<Arc<PeerIdentity>>,
}

impl OwnedRequest {
    /// The request as a plain handler gets it.
    pub fn as_request(&self) -> Request<'_> {
        let OwnedRequest { method, payload, arrival: arrived, budget, peer } = self;
        let (method, arrived, budget) = (*method, *arrived, *budget);
        Request { method, payload, arrival: arrived, budget, peer: peer.as_deref() }
    }
}

/// Executes requests as tasks; all cores share the handler.
///
/// Use it for requests that wait for something other than a CPU: a time, another service, a thread.
/// A request that only computes is cheaper as a plain [`Handler`](super::Handler), without an
/// allocation or a wake-up.
///
/// The future runs on one core after another, between other requests. Code that blocks its thread
/// blocks a core and all requests on it. The future is dropped where it waits if its client leaves,
/// or if a stopping server's time limit ends.
///
/// ```
/// use leeward_core::units::Nanos;
/// use leeward_rpc::server::{AsyncHandler, HandlerError, OwnedRequest, Server};
/// use leeward_runtime::timers::{sleep, timeout};
///
/// struct Patient;
///
/// impl AsyncHandler for Patient {
///     async fn call(&self, request: OwnedRequest) -> Result<Vec<u8>, HandlerError> {
///         // A backend that takes one millisecond of two.
///         let backend = sleep(Nanos::from_millis(1));
///         match timeout(Nanos::from_millis(2), backend).await {
///             Ok(()) => Ok(request.payload),
///             Err(elapsed) => Err(HandlerError::Message(elapsed.to_string())),
///         }
///     }
/// }
///
/// let server = Server::builder().start_async("127.0.0.1:0", Patient)?;
/// // A closure works, too.
/// let handler = |request: OwnedRequest| async move { Ok(request.payload) };
/// let echo = Server::builder().start_async("127.0.0.1:0", handler)?;
/// # server.stop()?;
/// # echo.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait AsyncHandler: Send + Sync + 'static {
    /// Executes `request`, and returns the payload of the response.
    ///
    /// # Errors
    /// The client gets the error as a failure. A panic counts as an error.
    fn call(&self, request: OwnedRequest) -> impl Future<Output = Result<Vec<u8>, HandlerError>> + Send;
}

impl<F, T> AsyncHandler for F
where
    F: Fn(OwnedRequest) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Vec<u8>, HandlerError>> + Send,
{
    fn call(&self, request: OwnedRequest) -> impl Future<Output = Result<Vec<u8>, HandlerError>> + Send {
        self(request)
    }
}
