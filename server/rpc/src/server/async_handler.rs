//! Handler of requests that wait meanwhile: an application's code as a future.

use super::handler::{HandlerError, Request};
use crate::wire::{Budget, Method};
use leeward_core::units::Time;
use leeward_engine::PeerIdentity;
use std::future::Future;
use std::sync::Arc;

/// A request as its asynchronous handler gets it: the argument is its own.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    /// Which procedure.
    pub method: Method,
    /// Its argument. A handler may use the buffer for its result.
    pub payload: Vec<u8>,
    /// When its packet was read, on the server's clock.
    pub arrival: Time,
    /// Queueing delay that it might still spend when it arrived. [`leeward_runtime::budget::current`] says what is left.
    pub budget: Budget,
    /// Identity that the client has proven by its certificate; `None` where none is asked for.
    pub peer: Option<Arc<PeerIdentity>>,
}

impl OwnedRequest {
    /// As a plain handler would see it.
    pub fn as_request(&self) -> Request<'_> {
        let OwnedRequest { method, payload, arrival: arrived, budget, peer } = self;
        let (method, arrived, budget) = (*method, *arrived, *budget);
        Request { method, payload, arrival: arrived, budget, peer: peer.as_deref() }
    }
}

/// Executes requests as tasks, on any core: shared by all of them. For requests that wait for something else than a CPU:
/// a time, another service, a thread. One that only computes is cheaper as a plain [`Handler`](super::Handler), which
/// costs no allocation and no wake-up.
///
/// The future runs on one core after the other, between other requests; code that blocks its thread blocks a core and
/// all that waits for it. When its client leaves, or a stopping server's patience ends, the future is dropped where it
/// waits.
///
/// ```
/// use leeward_core::units::Nanos;
/// use leeward_rpc::server::{AsyncHandler, Failed, OwnedRequest, Server};
/// use leeward_runtime::timers::{sleep, timeout};
///
/// struct Patient;
///
/// impl AsyncHandler for Patient {
///     async fn call(&self, request: OwnedRequest) -> Result<Vec<u8>, Failed> {
///         // A backend that is given two milliseconds and takes one.
///         let backend = sleep(Nanos::from_millis(1));
///         match timeout(Nanos::from_millis(2), backend).await {
///             Ok(()) => Ok(request.payload),
///             Err(elapsed) => Err(Failed::Because(elapsed.to_string())),
///         }
///     }
/// }
///
/// let server = Server::builder().start_async("127.0.0.1:0", Patient)?;
/// // A closure is as good.
/// let echo = Server::builder().start_async("127.0.0.1:0", |request: OwnedRequest| async move { Ok(request.payload) })?;
/// # server.stop()?;
/// # echo.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait AsyncHandler: Send + Sync + 'static {
    /// Executes `request`; the result is the answer's payload.
    ///
    /// # Errors
    /// What goes to the client as a failure. A panic counts as one.
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
