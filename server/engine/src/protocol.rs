//! The seam between the engine and a protocol: bytes in; calls, words and endings out. No socket, no clock.

use crate::encryption::PeerIdentity;
use crate::free_buffers::FreeBuffers;
use crate::input::Input;
use crate::poll_context::PollContext;
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use leeward_runtime::tasks::ReadyTask;

/// A protocol of a server, one value per core. The engine owns sockets, turns and bounds; the protocol owns the meaning of
/// bytes. Everything is monomorphised: a protocol costs no virtual call.
pub trait Protocol: Sized + Send + 'static {
    /// State of a connection, without its socket.
    type Connection: Send;
    /// Receive buffer of a connection. [`ReceiveBuffer`](crate::ReceiveBuffer) is one for short requests.
    type Input: Input;
    /// An admitted request on its way to a core that executes it.
    type Call: Send + 'static;
    /// A request's end on its way back to its connection.
    type Completion: Send + 'static;

    /// Whole requests of one connection that are handled before it is others' turn.
    const QUANTUM: usize;
    /// Whether a connection's requests are executed one after another.
    const IS_SERIAL: bool;
    /// Whether ends may come from outside of a core ([`crate::Handle::finish`]).
    const HAS_TASKS: bool;
    /// Whether the protocol keeps its answers within [`Visit::longest_answer`], but for words of its own around what is asked for. Then even those are answered for whose long answers there is
    /// no memory, and nobody is locked out by those that take none.
    const BOUNDS_ANSWERS: bool = false;

    // ---- a connection's life ----

    /// Begins a connection.
    fn open(&mut self, visit: &mut PollContext<'_, Self::Call>) -> Self::Connection;

    /// The connection's client has proven who it is, before anything else of it has come. Its requests count for this tenant.
    fn identify(_: &mut Self::Connection, _: PeerIdentity, _: Tenant) {}

    /// Handles the next thing that has come, and decides about it.
    fn next(
        &mut self,
        connection: &mut Self::Connection,
        visit: &mut PollContext<'_, Self::Call>,
    ) -> ProtocolEvent<Self::Call>;

    /// Appends the answer to a call, and settles its account with the controller.
    fn answer(
        &mut self,
        connection: &mut Self::Connection,
        done: Self::Completion,
        visit: &mut PollContext<'_, Self::Call>,
    ) -> AnswerOutcome;

    /// The controller gives this connection's session an explicit credit. Whether the client was told.
    fn send_credit(&mut self, connection: &mut Self::Connection, visit: &mut PollContext<'_, Self::Call>) -> bool;

    /// The connection is to end: appends its last words. What is unanswered is abandoned, and returned as a number.
    fn close_with(
        &mut self,
        connection: &mut Self::Connection,
        why: CloseReason,
        visit: &mut PollContext<'_, Self::Call>,
    ) -> usize;

    /// The connection has gone. What is unanswered is abandoned, and returned as a number.
    fn close(&mut self, connection: &mut Self::Connection, visit: &mut PollContext<'_, Self::Call>) -> usize;

    // ---- a connection's bytes ----

    /// The connection's receive buffer.
    fn input(connection: &mut Self::Connection) -> &mut Self::Input;

    /// Whether more may be handled now: not while the peer has as much unanswered as it may. Unless said otherwise, that is
    /// one request.
    fn may_read(connection: &Self::Connection) -> bool {
        Self::unanswered(connection) == 0
    }

    /// Requests that are unanswered.
    fn unanswered(connection: &Self::Connection) -> usize;

    /// Whether the connection ends as soon as it owes nothing.
    fn is_closing(_: &Self::Connection) -> bool {
        false
    }

    /// Whether a peer that has closed its half is still owed answers.
    fn answers_half_closed(_: &Self::Connection) -> bool {
        true
    }

    /// A tenth of a second has passed. Whether the connection may be read again that might not be before.
    fn on_scan(_: &mut Self::Connection) -> bool {
        false
    }

    // ---- a call, on any core ----

    /// The method of a call, by which its time on a core is told.
    fn method(_: &Self::Call) -> Method {
        Method::DEFAULT
    }

    /// Executes a call, or begins the task that does. It came at `arrived` and has `waited` since.
    fn execute(
        &self,
        call: Self::Call,
        arrived: Time,
        waited: Nanos,
        spares: &mut FreeBuffers,
    ) -> ExecuteOutcome<Self::Completion>;

    /// The end of a call that the controller refuses when its turn has come.
    fn reject(call: Self::Call, reason: RejectReason) -> Self::Completion;
}

/// Result of [`Protocol::next`].
#[derive(Debug)]
pub enum ProtocolEvent<C> {
    /// Nothing whole is left: more bytes are needed.
    Incomplete,
    /// Something that is dealt with, and was no request; words may stand in the output.
    Handled,
    /// A request to which its client was not entitled; the refusal stands in the output. It ends the connection's turn.
    Violation,
    /// A request that was decided against at once; the refusal stands in the output.
    Rejected,
    /// A request to be executed.
    Call {
        /// The request.
        call: C,
        /// Whether the controller has admitted it, and may refuse it yet. It does not know of those that are about the server.
        is_admitted: bool,
    },
    /// Something after which the connection ends.
    Close(CloseReason),
}

/// Fate of a connection after an answer.
#[derive(Debug)]
pub enum AnswerOutcome {
    /// The connection goes on.
    Continue,
    /// The connection goes on: its answer was that there is no memory for a longer one. If that happens often, it goes on within a tenth of a second.
    Pause,
    /// The connection ends.
    Close(CloseReason),
}

/// Result of [`Protocol::execute`].
pub enum ExecuteOutcome<D> {
    /// The call has ended.
    Done(D),
    /// A task executes the call, and says its end by [`crate::Handle::finish`].
    Task(ReadyTask),
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The server has as many connections as it takes.
    ConnectionLimit,
    /// The server is stopping and takes no new connection.
    Stopping,
    /// The server has stopped.
    Stopped,
    /// Nothing has come for too long.
    Silence,
    /// A request has taken too long to come.
    SlowRequest,
    /// The server takes encrypted connections alone, and this one is not.
    Unencrypted,
    /// The client has proven who it is, and the server takes nobody of that name.
    UnknownIdentity,
    /// The protocol's own reason: an offence, or the client's wish.
    Protocol {
        /// The protocol's code.
        code: u8,
        /// The words that the peer is told.
        message: String,
    },
}

impl CloseReason {
    /// The protocol's own end without a word.
    pub const SILENT: CloseReason = CloseReason::Protocol { code: 0, message: String::new() };
}
