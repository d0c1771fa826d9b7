//! memcached's protocol for the engine.
//!
//! The requests of one connection run one after another, as its client expects. Requests of
//! different connections go through the run queues, and idle cores steal them.

use super::unix_seconds;
use crate::protocol::{
    ConnectionAction, Decoder, DecoderOutput as Decoded, ExecuteError, Executor, Request, RequestScope, TOO_LONG,
};
use crate::store::stats::Counter;
use crate::store::{PAGE, RequestContext as StoreContext};
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use leeward_engine::{
    AnswerOutcome as Fate, ClientProtocol, CloseReason, ControllerSession, ExecuteOutcome, FreeBuffers, PeerIdentity,
    PollContext, Protocol, ProtocolEvent, RejectCode, RequestOutcome,
};
use leeward_host::ConnectionContext;
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Capacity of a request's memory that a connection keeps for its next request, in bytes.
const REQUEST_CAPACITY_MAX: usize = 16 * 1024;
/// Prefix of each answer that reports a failure of the server.
const FAILURE: &[u8] = b"SERVER_ERROR";

/// The protocol, one per core.
pub(super) struct Memcached {
    executor: Executor,
}

/// A connection.
pub(super) struct MemcachedConnection {
    decoder: Decoder,
    /// Session of the one request in flight; the next request waits for its end, because answers
    /// have an order.
    session: ControllerSession,
    /// Memory for the next request.
    request: Request,
}

/// An admitted request on its way to the store.
pub(super) struct Call {
    request: Request,
    arrival: Time,
    /// Queueing delay that the request may still spend.
    budget: leeward_core::budget::Budget,
    /// Limit of the answer's length by free memory, in bytes.
    reply_max: usize,
}

/// A finished request; its memory is reused.
pub(super) struct Completion {
    request: Request,
    arrival: Time,
    reply: Vec<u8>,
    outcome: CallOutcome,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Executed(ConnectionAction),
    /// The controller rejected it when it was dequeued, or a lock was congested.
    Rejected(RejectCode),
    /// No memory for the answer.
    TooLong,
    /// A defect.
    Panicked,
}

/// Returns a request's method for the controller: 0 for reads, 1 for others.
fn method_of(request: &Request) -> Method {
    if Executor::only_reads(request) { Method::DEFAULT } else { Method(1) }
}

/// Returns the final message for a client of another protocol.
///
/// As with memcached it is empty for a browser, and for a client of the binary protocol, which
/// could not read it.
fn greeting_error(foreign: Option<ClientProtocol>) -> String {
    match foreign {
        None | Some(ClientProtocol::Http | ClientProtocol::Http2 | ClientProtocol::MemcachedBinary) => String::new(),
        Some(greeting) => format!("CLIENT_ERROR this port speaks memcached's text protocol, not {greeting}\r\n"),
    }
}

impl Memcached {
    pub(super) fn new(executor: Executor) -> Self {
        Memcached { executor }
    }

    /// Starts a decoded request, or answers it at once.
    fn begin(
        &mut self,
        connection: &mut MemcachedConnection,
        context: &mut PollContext<'_, Call>,
    ) -> ProtocolEvent<Call> {
        let scope = Executor::scope(&connection.request);
        if scope == RequestScope::Connection {
            let now = StoreContext::at(unix_seconds());
            let action = self.executor.execute(&connection.request, &now, context.out());
            return if action == Ok(ConnectionAction::Close) {
                ProtocolEvent::Close(CloseReason::SILENT)
            } else {
                ProtocolEvent::Handled
            };
        }
        let is_admitted = scope == RequestScope::Items;
        if !is_admitted {
            connection.session.begin_uncontrolled();
        } else if let Err(reason) = connection.session.admit(method_of(&connection.request), context) {
            connection.session.finish(context.arrival(), RequestOutcome::Rejected(reason), context);
            connection.reject_busy(context);
            return ProtocolEvent::Rejected;
        }
        let request = std::mem::take(&mut connection.request);
        let longest = context.longest_answer();
        let call = Call { request, arrival: context.arrival(), budget: context.limits.budget, reply_max: longest };
        ProtocolEvent::Call { call, is_admitted }
    }
}

impl MemcachedConnection {
    /// Rejects the request, and the parts of the same multi-get that are not decoded yet.
    fn reject_busy(&mut self, context: &mut PollContext<'_, Call>) {
        let reply = Executor::busy_reply(&self.request);
        context.out().extend_from_slice(reply);
        self.decoder.skip_parts();
    }
}

impl Protocol for Memcached {
    type Connection = MemcachedConnection;
    type Input = Decoder;
    type Call = Call;
    type Completion = Completion;

    const QUANTUM: usize = 64;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;
    const BOUNDS_ANSWERS: bool = true;

    fn open(&mut self, context: &mut PollContext<'_, Call>) -> MemcachedConnection {
        MemcachedConnection {
            decoder: Decoder::new(PAGE),
            session: ControllerSession::open(context),
            request: Request::default(),
        }
    }

    fn identify(connection: &mut MemcachedConnection, _: PeerIdentity, tenant: Tenant) {
        connection.session.count_for(tenant);
    }

    fn next(
        &mut self,
        connection: &mut MemcachedConnection,
        context: &mut PollContext<'_, Call>,
    ) -> ProtocolEvent<Call> {
        match connection.decoder.next(&mut connection.request) {
            Decoded::Incomplete => ProtocolEvent::Incomplete,
            Decoded::Close => ProtocolEvent::Close(CloseReason::Protocol {
                code: 0,
                message: greeting_error(connection.decoder.foreign()),
            }),
            Decoded::Reply(reply) => {
                context.out().extend_from_slice(reply);
                ProtocolEvent::Handled
            }
            Decoded::Request => self.begin(connection, context),
        }
    }

    fn answer(
        &mut self,
        connection: &mut MemcachedConnection,
        done: Completion,
        context: &mut PollContext<'_, Call>,
    ) -> Fate {
        let Completion { request, arrival: arrived, reply, outcome: end } = done;
        let settled = match end {
            CallOutcome::Rejected(reason) => RequestOutcome::Rejected(reason),
            CallOutcome::Executed(_) => RequestOutcome::Answered { succeeded: !reply.starts_with(FAILURE) },
            CallOutcome::TooLong | CallOutcome::Panicked => RequestOutcome::Answered { succeeded: false },
        };
        if !connection.session.finish(arrived, settled, context) {
            return Fate::Continue;
        }
        connection.request = request;
        context.write_owned(reply);
        if let RequestOutcome::Rejected(_) = settled {
            connection.reject_busy(context);
        }
        if end == CallOutcome::TooLong {
            context.out().extend_from_slice(TOO_LONG);
            connection.decoder.skip_parts();
        }
        if connection.request.capacity() > REQUEST_CAPACITY_MAX {
            // After one large request the connection does not keep its memory.
            connection.request = Request::default();
        }
        match end {
            CallOutcome::Executed(ConnectionAction::Close) => Fate::Close(CloseReason::SILENT),
            // The client may send the request again, but not at full speed.
            CallOutcome::TooLong => Fate::Pause,
            CallOutcome::Panicked => {
                Fate::Close(CloseReason::Protocol { code: 0, message: "SERVER_ERROR internal error\r\n".into() })
            }
            _ => Fate::Continue,
        }
    }

    fn send_credit(&mut self, connection: &mut MemcachedConnection, context: &mut PollContext<'_, Call>) -> bool {
        connection.session.credit(context);
        false
    }

    fn close_with(
        &mut self,
        connection: &mut MemcachedConnection,
        why: CloseReason,
        context: &mut PollContext<'_, Call>,
    ) -> usize {
        let text = match &why {
            CloseReason::ConnectionLimit => "ERROR Too many open connections\r\n",
            CloseReason::Unencrypted => "SERVER_ERROR this port speaks TLS alone\r\n",
            CloseReason::UnknownIdentity => "SERVER_ERROR no client of this certificate's name is taken\r\n",
            CloseReason::SlowRequest => "CLIENT_ERROR the request has taken too long\r\n",
            CloseReason::Protocol { message: text, .. } => text,
            CloseReason::Stopping | CloseReason::Stopped | CloseReason::Silence => "",
        };
        if why == CloseReason::ConnectionLimit {
            self.executor.store().stats().count(Counter::RejectedConnections);
        }
        context.out().extend_from_slice(text.as_bytes());
        connection.session.abandon(context)
    }

    fn close(&mut self, connection: &mut MemcachedConnection, context: &mut PollContext<'_, Call>) -> usize {
        connection.session.abandon(context)
    }

    fn input(connection: &mut MemcachedConnection) -> &mut Decoder {
        &mut connection.decoder
    }

    fn unanswered(connection: &MemcachedConnection) -> usize {
        connection.session.owed()
    }

    fn method(call: &Call) -> Method {
        method_of(&call.request)
    }

    fn execute(
        &self,
        call: Call,
        arrived: Time,
        waited: Nanos,
        free_buffers: &mut FreeBuffers,
    ) -> ExecuteOutcome<Completion> {
        let Call { request, budget: mut remaining, reply_max: longest, .. } = call;
        let mut reply = free_buffers.take();
        remaining.charge(waited);
        let context = StoreContext { now: unix_seconds(), reply_max: longest };
        let executed = AssertUnwindSafe(|| self.executor.execute(&request, &context, &mut reply));
        let end = match catch_unwind(|| budget::with(remaining, executed).0) {
            Ok(Ok(action)) => CallOutcome::Executed(action),
            Ok(Err(ExecuteError::Congested(_))) => CallOutcome::Rejected(RejectCode::Lock),
            Ok(Err(ExecuteError::TooLong)) => CallOutcome::TooLong,
            // A panic is a defect; only its connection is closed.
            Err(_) => CallOutcome::Panicked,
        };
        if end == CallOutcome::Panicked {
            reply.clear();
        }
        ExecuteOutcome::Done(Completion { request, arrival: arrived, reply, outcome: end })
    }

    fn reject(call: Call, reason: RejectReason) -> Completion {
        Completion {
            request: call.request,
            arrival: call.arrival,
            reply: Vec::new(),
            outcome: CallOutcome::Rejected(reason.into()),
        }
    }
}
