//! The client that applications hold: makes calls, reads the counters, shuts down.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_channel::oneshot;
use leeward_core::units::Nanos;

use super::call::{CallOptions, Response};
use super::call_error::{CallError, Effect};
use super::counters::{ClientCounts, count};
use super::inbox::{InboxMode, SubmitError};
use super::response_future::ResponseFuture;
use super::shared::{Command, NewCall, SharedState};
use crate::wire::{Method, PayloadLimit};

/// Calls procedures at one or more replicas of a server, under the client half of an admission
/// controller.
///
/// Clones are cheap, and share connections, queues and budgets. A dedicated thread does all I/O.
///
/// After the last clone is dropped, calls in flight still end, each within its timeout. Then the
/// thread closes the connections and ends. [`Client::shut_down`] does that at once.
///
/// # Example
/// ```
/// use leeward_core::params::Params;
/// use leeward_core::units::Nanos;
/// use leeward_rpc::client::Client;
/// use leeward_rpc::server::{HandlerError, Request, Server};
/// use leeward_rpc::wire::Method;
/// use leeward_runtime::IdlePolicy;
///
/// let breakwater = leeward_controllers::builtin().find("breakwater")?.clone();
/// let (rtt, slo) = (Nanos::from_micros(30), Nanos::from_millis(50));
/// let server = Server::builder()
///     .admission(&breakwater, Params::default())
///     .objective(rtt, slo)
///     .idle(IdlePolicy::Block)
///     .start(
///         "127.0.0.1:0",
///         |request: &Request<'_>, reply: &mut Vec<u8>| -> Result<(), HandlerError> {
///             reply.extend_from_slice(request.payload);
///             Ok(())
///         },
///     )?;
///
/// // The server's controller and objective: the client half runs here.
/// let client = Client::builder()
///     .replica(server.address().to_string())
///     .admission(&breakwater, Params::default())
///     .objective(rtt, slo)
///     .build()?;
///
/// // In an async function it would be `client.call(Method(1), "hello").await`.
/// match client.call_blocking(Method(1), "hello") {
///     Ok(response) => assert_eq!(response.payload, b"hello"),
///     Err(error) if error.is_overload() => println!("overload: {error}"),
///     Err(error) => println!("{error}; may have been executed: {:?}", error.effect()),
/// }
/// # server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Handle that the clones of a client share. Its drop closes the client.
struct Handle {
    shared: Arc<SharedState>,
    timeout: Nanos,
    payload_max: PayloadLimit,
}

impl Client {
    pub(super) fn new(shared: Arc<SharedState>, timeout: Nanos, payload_max: PayloadLimit) -> Self {
        Client { handle: Arc::new(Handle { shared, timeout, payload_max }) }
    }

    /// Calls `method` with `argument`.
    ///
    /// The call is made at once. The future waits for its outcome, which comes exactly once, within
    /// the timeout.
    ///
    /// # Errors
    /// The future returns a [`CallError`] if there is no result.
    pub fn call(&self, method: Method, argument: impl Into<Vec<u8>>) -> ResponseFuture {
        self.call_with(method, argument, CallOptions::new())
    }

    /// Like [`Client::call`], with its own priority, budget or timeout.
    ///
    /// # Errors
    /// The future returns a [`CallError`] if there is no result.
    pub fn call_with(&self, method: Method, argument: impl Into<Vec<u8>>, options: CallOptions) -> ResponseFuture {
        let shared = &self.handle.shared;
        let payload = argument.into();
        count(&shared.counters.calls);
        let limit = self.handle.payload_max;
        if payload.len() > limit.bytes() as usize {
            return self.reject(CallError::TooLarge { length: payload.len(), limit });
        }
        let made = shared.clock.now();
        let deadline = made + options.timeout.unwrap_or(self.handle.timeout);
        let (answer, receiver) = oneshot::channel();
        let call = Box::new(NewCall { method, payload, options, made, deadline, answer });
        match shared.inbox.submit(|number| Command::Call { number, call }) {
            Ok(number) => ResponseFuture::new(number, receiver, Arc::clone(shared)),
            Err(SubmitError::Full) => self.reject(CallError::QueueFull { waited: Nanos::ZERO }),
            Err(SubmitError::Closed) => self.reject(CallError::ShutDown { effect: Effect::Excluded }),
        }
    }

    fn reject(&self, error: CallError) -> ResponseFuture {
        self.handle.shared.counters.record_error(&error);
        ResponseFuture::rejected(error)
    }

    /// Like [`Client::call`], for plain threads: blocks until the call ends.
    ///
    /// Don't use it in async tasks and server handlers, because it blocks their thread.
    ///
    /// # Errors
    /// A [`CallError`] if there is no result.
    pub fn call_blocking(&self, method: Method, argument: impl Into<Vec<u8>>) -> Result<Response, CallError> {
        pollster::block_on(self.call(method, argument))
    }

    /// Like [`Client::call_with`], for plain threads.
    ///
    /// # Errors
    /// A [`CallError`] if there is no result.
    pub fn call_blocking_with(
        &self,
        method: Method,
        argument: impl Into<Vec<u8>>,
        options: CallOptions,
    ) -> Result<Response, CallError> {
        pollster::block_on(self.call_with(method, argument, options))
    }

    /// Counters of calls by outcome, so far.
    pub fn counts(&self) -> ClientCounts {
        self.handle.shared.counters.counts()
    }

    /// Number of open connections that their server has welcomed.
    pub fn connected(&self) -> usize {
        self.handle.shared.counters.connected.load(Ordering::Relaxed)
    }

    /// Ends all calls in flight with [`CallError::ShutDown`], closes the connections and ends the
    /// thread, for all clones.
    ///
    /// Returns without waiting for that.
    pub fn shut_down(&self) {
        self.handle.shared.inbox.close(InboxMode::Aborting);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.inbox.close(InboxMode::Closing);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connected", &self.connected()).field("counts", &self.counts()).finish()
    }
}
