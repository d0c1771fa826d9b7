//! The interface of a protocol to the engine: bytes in; calls, responses and closes out. No socket,
//! no clock.

use crate::encryption::PeerIdentity;
use crate::free_buffers::FreeBuffers;
use crate::input::Input;
use crate::poll_context::PollContext;
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use leeward_runtime::tasks::ReadyTask;

/// A protocol of a server, one value per core. The engine owns sockets, scheduling and limits; the
/// protocol owns the meaning of bytes. Everything is monomorphised: a protocol costs no virtual
/// call.
pub trait Protocol: Sized + Send + 'static {
    /// State of a connection, without its socket.
    type Connection: Send;
    /// Receive buffer of a connection. [`ReceiveBuffer`](crate::ReceiveBuffer) is one for short
    /// requests.
    type Input: Input;
    /// An admitted request on its way to a core that executes it.
    type Call: Send + 'static;
    /// A completed request on its way back to its connection.
    type Completion: Send + 'static;

    /// Complete requests of one connection that are handled before other connections.
    const QUANTUM: usize;
    /// Whether a connection's requests run one after another.
    const IS_SERIAL: bool;
    /// Whether completions may come from outside of a core ([`crate::Handle::finish`]).
    const HAS_TASKS: bool;
    /// Whether the protocol keeps its responses within [`PollContext::longest_answer`], apart from
    /// its framing. Short requests are then answered even while there is no memory for long
    /// responses. Clients that take no responses then lock out nobody.
    const BOUNDS_ANSWERS: bool = false;

    // ---- lifecycle of a connection ----

    /// Begins a connection.
    fn open(&mut self, context: &mut PollContext<'_, Self::Call>) -> Self::Connection;

    /// Notes the identity that the client has proven, before any other bytes. Its requests count
    /// for this tenant.
    fn identify(_: &mut Self::Connection, _: PeerIdentity, _: Tenant) {}

    /// Handles the next request or message in the buffer.
    fn next(
        &mut self,
        connection: &mut Self::Connection,
        context: &mut PollContext<'_, Self::Call>,
    ) -> ProtocolEvent<Self::Call>;

    /// Appends the response to a call, and reports its end to the controller.
    fn answer(
        &mut self,
        connection: &mut Self::Connection,
        done: Self::Completion,
        context: &mut PollContext<'_, Self::Call>,
    ) -> AnswerOutcome;

    /// Takes the controller's explicit credit for this connection's session. Returns whether the
    /// client is told.
    fn send_credit(&mut self, connection: &mut Self::Connection, context: &mut PollContext<'_, Self::Call>) -> bool;

    /// Appends the final response of a closing connection. Returns the number of unanswered
    /// requests, which are abandoned.
    fn close_with(
        &mut self,
        connection: &mut Self::Connection,
        reason: CloseReason,
        context: &mut PollContext<'_, Self::Call>,
    ) -> usize;

    /// Handles the end of a connection. Returns the number of unanswered requests, which are
    /// abandoned.
    fn close(&mut self, connection: &mut Self::Connection, context: &mut PollContext<'_, Self::Call>) -> usize;

    // ---- bytes of a connection ----

    /// Returns the connection's receive buffer.
    fn input(connection: &mut Self::Connection) -> &mut Self::Input;

    /// Returns whether more may be handled now. False while the peer has its maximum of unanswered
    /// requests, by default one.
    fn may_read(connection: &Self::Connection) -> bool {
        Self::unanswered(connection) == 0
    }

    /// Number of unanswered requests.
    fn unanswered(connection: &Self::Connection) -> usize;

    /// Returns whether the connection closes as soon as all requests are answered.
    fn is_closing(_: &Self::Connection) -> bool {
        false
    }

    /// Returns whether a peer that has closed its half still gets responses.
    fn answers_half_closed(_: &Self::Connection) -> bool {
        true
    }

    /// Called every tenth of a second. Returns whether the connection may be read again that was
    /// not to be read.
    fn on_scan(_: &mut Self::Connection) -> bool {
        false
    }

    // ---- a call, on any core ----

    /// The method of a call, under which its time on a core is recorded.
    fn method(_: &Self::Call) -> Method {
        Method::DEFAULT
    }

    /// Executes a call, or begins the task that does. The call arrived at `arrived` and has
    /// `waited` since.
    fn execute(
        &self,
        call: Self::Call,
        arrived: Time,
        waited: Nanos,
        free_buffers: &mut FreeBuffers,
    ) -> ExecuteOutcome<Self::Completion>;

    /// Completes a call that the controller rejects when it is dequeued.
    fn reject(call: Self::Call, reason: RejectReason) -> Self::Completion;
}

/// Result of [`Protocol::next`].
#[derive(Debug)]
pub enum ProtocolEvent<C> {
    /// No complete request is left; more bytes are needed.
    Incomplete,
    /// Handled something that was no request. The output may have a response.
    Handled,
    /// A request to which the client was not entitled; the rejection is in the output. Several end
    /// the connection's quantum.
    Violation,
    /// A request that was rejected at once; the rejection is in the output.
    Rejected,
    /// A request to be executed.
    Call {
        /// The request.
        call: C,
        /// Whether the controller has admitted it and may still reject it. False for requests about
        /// the server, which the controller doesn't know.
        is_admitted: bool,
    },
    /// The connection must close.
    Close(CloseReason),
}

/// Fate of a connection after a response.
#[derive(Debug)]
pub enum AnswerOutcome {
    /// The connection goes on.
    Continue,
    /// The connection goes on: the response was a rejection for lack of memory. If that happens
    /// often, the connection is paused for up to a tenth of a second.
    Pause,
    /// The connection closes.
    Close(CloseReason),
}

/// Result of [`Protocol::execute`].
pub enum ExecuteOutcome<D> {
    /// The call is done.
    Done(D),
    /// A task executes the call, and completes it with [`crate::Handle::finish`].
    Task(ReadyTask),
}

/// Reason for which a connection closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The server has reached its connection limit.
    ConnectionLimit,
    /// The server is stopping and accepts no connection.
    Stopping,
    /// The server has stopped.
    Stopped,
    /// The client was silent for too long.
    Silence,
    /// A request took too long to arrive.
    SlowRequest,
    /// The server requires encryption, and the connection is unencrypted.
    Unencrypted,
    /// The server accepts no client of the proven identity.
    UnknownIdentity,
    /// The protocol's own reason: a violation, or the client's wish.
    Protocol {
        /// The protocol's code.
        code: u8,
        /// Message for the peer.
        message: String,
    },
}

impl CloseReason {
    /// Close by the protocol without a message.
    pub const SILENT: CloseReason = CloseReason::Protocol { code: 0, message: String::new() };
}
