//! The client that applications hold: makes calls, looks at the counters, ends.

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

/// Calls procedures at one or more replicas of a server, under the client half of an admission controller. Cheap to
/// clone; clones share connections, queues and budgets. One thread of its own does all I/O.
///
/// When the last clone is dropped, calls under way still end, each no later than its time-out; then the connections are
/// closed and the thread ends. [`Client::shut_down`] does that at once.
///
/// # Example
/// ```
/// use leeward_core::params::Params;
/// use leeward_core::units::Nanos;
/// use leeward_rpc::client::{CallError, Client};
/// use leeward_rpc::server::{Failed, Request, Server};
/// use leeward_rpc::wire::Method;
/// use leeward_runtime::Idle;
///
/// let breakwater = leeward_controllers::builtin().find("breakwater")?.clone();
/// let (rtt, slo) = (Nanos::from_micros(30), Nanos::from_millis(50));
/// let server = Server::builder()
///     .admission(&breakwater, Params::default())
///     .objective(rtt, slo)
///     .idle(Idle::Block)
///     .start("127.0.0.1:0", |request: &Request<'_>, reply: &mut Vec<u8>| -> Result<(), Failed> {
///         reply.extend_from_slice(request.payload);
///         Ok(())
///     })?;
///
/// // The same controller and objective as the server's: half of it works here.
/// let client = Client::builder()
///     .replica(server.address().to_string())
///     .admission(&breakwater, Params::default())
///     .objective(rtt, slo)
///     .build()?;
///
/// // In an async function it would be `client.call(Method(1), "hello").await`.
/// match client.call_blocking(Method(1), "hello") {
///     Ok(response) => assert_eq!(response.payload, b"hello"),
///     Err(error @ (CallError::Rejected { .. } | CallError::Expired { .. })) => println!("overload: {error}"),
///     Err(error) => println!("{error}; may have been executed: {:?}", error.effect()),
/// }
/// # server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Handle that the clones of a client share. Its drop is the client's end.
struct Handle {
    shared: Arc<SharedState>,
    timeout: Nanos,
    payload_max: PayloadLimit,
}

impl Client {
    pub(super) fn new(shared: Arc<SharedState>, timeout: Nanos, payload_max: PayloadLimit) -> Self {
        Client { handle: Arc::new(Handle { shared, timeout, payload_max }) }
    }

    /// Calls `method` with `argument`. The call is made at once; the future waits for its end, which comes exactly once and
    /// no later than the time-out.
    ///
    /// # Errors
    /// The future gives a [`CallError`] where there is no result.
    pub fn call(&self, method: Method, argument: impl Into<Vec<u8>>) -> ResponseFuture {
        self.call_with(method, argument, CallOptions::new())
    }

    /// [`Client::call`] with a priority, a budget or a time-out of its own.
    ///
    /// # Errors
    /// The future gives a [`CallError`] where there is no result.
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

    /// [`Client::call`] for plain threads: waits here for the end. Don't use it in async tasks and server handlers,
    /// whose thread it would hold.
    ///
    /// # Errors
    /// A [`CallError`] where there is no result.
    pub fn call_blocking(&self, method: Method, argument: impl Into<Vec<u8>>) -> Result<Response, CallError> {
        pollster::block_on(self.call(method, argument))
    }

    /// [`Client::call_with`] for plain threads.
    ///
    /// # Errors
    /// A [`CallError`] where there is no result.
    pub fn call_blocking_with(
        &self,
        method: Method,
        argument: impl Into<Vec<u8>>,
        options: CallOptions,
    ) -> Result<Response, CallError> {
        pollster::block_on(self.call_with(method, argument, options))
    }

    /// How many calls ended how, so far.
    pub fn counts(&self) -> ClientCounts {
        self.handle.shared.counters.counts()
    }

    /// Connections that are up: welcomed by their server, and not lost since.
    pub fn connected(&self) -> usize {
        self.handle.shared.counters.connected.load(Ordering::Relaxed)
    }

    /// Ends all calls under way with [`CallError::ShutDown`], closes the connections and ends the thread, for all clones.
    /// Does not wait for that.
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
