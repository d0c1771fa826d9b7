//! memcached's protocol for the engine: a connection's requests are executed one after another, as its client expects; those
//! of different connections go through the run queues, and idle cores steal them.

use super::unix_seconds;
use crate::protocol::{
    ConnectionAction, Decoder, DecoderOutput as Decoded, ExecuteError, Executor, Request, RequestScope, TOO_LONG,
};
use crate::store::stats::Counter;
use crate::store::{PAGE, RequestContext as StoreVisit};
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use leeward_engine::{
    AnswerOutcome as Fate, ClientProtocol, CloseReason, ControllerSession, ExecuteOutcome, FreeBuffers, PeerIdentity,
    PollContext, Protocol, ProtocolEvent, RejectCode, RequestOutcome,
};
use leeward_host::ConnectionContext;
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A request's memory that is kept for the connection's next one, in bytes.
const REQUEST_CAPACITY_MAX: usize = 16 * 1024;
/// Beginning of each answer that says that the server could not, whatever the client did.
const FAILURE: &[u8] = b"SERVER_ERROR";

/// Protocol of a core.
pub(super) struct Memcached {
    executor: Executor,
}

/// A connection.
pub(super) struct MemcachedConnection {
    decoder: Decoder,
    /// Account of the one request under way: the next one waits for its end, for they have an order.
    session: ControllerSession,
    /// Where the next request is put.
    request: Request,
}

/// An admitted request on its way to the store.
pub(super) struct Call {
    request: Request,
    arrival: Time,
    /// Queueing delay that it may spend.
    budget: leeward_core::budget::Budget,
    /// The longest answer that there is memory for, bytes.
    reply_max: usize,
}

/// A request's end. The request's memory is used again.
pub(super) struct Completion {
    request: Request,
    arrival: Time,
    reply: Vec<u8>,
    outcome: CallOutcome,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Executed(ConnectionAction),
    /// The controller said no when its turn had come, or a lock was congested.
    Rejected(RejectCode),
    /// There was no memory for its answer.
    TooLong,
    /// A defect.
    Panicked,
}

/// Method of a request, as the controller tells them apart.
fn method_of(request: &Request) -> Method {
    if Executor::only_reads(request) { Method::DEFAULT } else { Method(1) }
}

/// Last words for a client of another protocol. As from memcached there are none for a browser, and for a client of the
/// binary protocol, which could not read them.
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

    /// Has a decoded request executed, or answers it at once.
    fn begin(
        &mut self,
        conversation: &mut MemcachedConnection,
        visit: &mut PollContext<'_, Call>,
    ) -> ProtocolEvent<Call> {
        let concern = Executor::scope(&conversation.request);
        if concern == RequestScope::Connection {
            let now = StoreVisit::at(unix_seconds());
            let after = self.executor.execute(&conversation.request, &now, visit.out());
            return if after == Ok(ConnectionAction::Close) {
                ProtocolEvent::Close(CloseReason::SILENT)
            } else {
                ProtocolEvent::Handled
            };
        }
        let is_admitted = concern == RequestScope::Items;
        if !is_admitted {
            conversation.session.begin_uncontrolled();
        } else if let Err(reason) = conversation.session.admit(method_of(&conversation.request), visit) {
            conversation.session.finish(visit.arrival(), RequestOutcome::Rejected(reason), visit);
            conversation.reject_busy(visit);
            return ProtocolEvent::Rejected;
        }
        let request = std::mem::take(&mut conversation.request);
        let longest = visit.longest_answer();
        let call = Call { request, arrival: visit.arrival(), budget: visit.limits.budget, reply_max: longest };
        ProtocolEvent::Call { call, is_admitted }
    }
}

impl MemcachedConnection {
    /// Refuses the request, and what belongs to it and has not been decoded.
    fn reject_busy(&mut self, visit: &mut PollContext<'_, Call>) {
        let words = Executor::busy_reply(&self.request);
        visit.out().extend_from_slice(words);
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

    fn open(&mut self, visit: &mut PollContext<'_, Call>) -> MemcachedConnection {
        MemcachedConnection {
            decoder: Decoder::new(PAGE),
            session: ControllerSession::open(visit),
            request: Request::default(),
        }
    }

    fn identify(conversation: &mut MemcachedConnection, _: PeerIdentity, tenant: Tenant) {
        conversation.session.count_for(tenant);
    }

    fn next(
        &mut self,
        conversation: &mut MemcachedConnection,
        visit: &mut PollContext<'_, Call>,
    ) -> ProtocolEvent<Call> {
        match conversation.decoder.next(&mut conversation.request) {
            Decoded::Incomplete => ProtocolEvent::Incomplete,
            Decoded::Close => ProtocolEvent::Close(CloseReason::Protocol {
                code: 0,
                message: greeting_error(conversation.decoder.foreign()),
            }),
            Decoded::Reply(reply) => {
                visit.out().extend_from_slice(reply);
                ProtocolEvent::Handled
            }
            Decoded::Request => self.begin(conversation, visit),
        }
    }

    fn answer(
        &mut self,
        conversation: &mut MemcachedConnection,
        done: Completion,
        visit: &mut PollContext<'_, Call>,
    ) -> Fate {
        let Completion { request, arrival: arrived, reply, outcome: end } = done;
        let settled = match end {
            CallOutcome::Rejected(reason) => RequestOutcome::Rejected(reason),
            CallOutcome::Executed(_) => RequestOutcome::Answered { succeeded: !reply.starts_with(FAILURE) },
            CallOutcome::TooLong | CallOutcome::Panicked => RequestOutcome::Answered { succeeded: false },
        };
        if !conversation.session.finish(arrived, settled, visit) {
            return Fate::Continue;
        }
        conversation.request = request;
        visit.write_owned(reply);
        if let RequestOutcome::Rejected(_) = settled {
            conversation.reject_busy(visit);
        }
        if end == CallOutcome::TooLong {
            visit.out().extend_from_slice(TOO_LONG);
            conversation.decoder.skip_parts();
        }
        if conversation.request.capacity() > REQUEST_CAPACITY_MAX {
            // One large request is no reason to keep so much for ever.
            conversation.request = Request::default();
        }
        match end {
            CallOutcome::Executed(ConnectionAction::Close) => Fate::Close(CloseReason::SILENT),
            // It may ask again, but not as fast as it can.
            CallOutcome::TooLong => Fate::Pause,
            CallOutcome::Panicked => {
                Fate::Close(CloseReason::Protocol { code: 0, message: "SERVER_ERROR internal error\r\n".into() })
            }
            _ => Fate::Continue,
        }
    }

    fn send_credit(&mut self, conversation: &mut MemcachedConnection, visit: &mut PollContext<'_, Call>) -> bool {
        conversation.session.credit(visit);
        false
    }

    fn close_with(
        &mut self,
        conversation: &mut MemcachedConnection,
        why: CloseReason,
        visit: &mut PollContext<'_, Call>,
    ) -> usize {
        let words = match &why {
            CloseReason::ConnectionLimit => "ERROR Too many open connections\r\n",
            CloseReason::Unencrypted => "SERVER_ERROR this port speaks TLS alone\r\n",
            CloseReason::UnknownIdentity => "SERVER_ERROR no client of this certificate's name is taken\r\n",
            CloseReason::SlowRequest => "CLIENT_ERROR the request has taken too long\r\n",
            CloseReason::Protocol { message: words, .. } => words,
            CloseReason::Stopping | CloseReason::Stopped | CloseReason::Silence => "",
        };
        if why == CloseReason::ConnectionLimit {
            self.executor.store().stats().count(Counter::RejectedConnections);
        }
        visit.out().extend_from_slice(words.as_bytes());
        conversation.session.abandon(visit)
    }

    fn close(&mut self, conversation: &mut MemcachedConnection, visit: &mut PollContext<'_, Call>) -> usize {
        conversation.session.abandon(visit)
    }

    fn input(conversation: &mut MemcachedConnection) -> &mut Decoder {
        &mut conversation.decoder
    }

    fn unanswered(conversation: &MemcachedConnection) -> usize {
        conversation.session.owed()
    }

    fn method(call: &Call) -> Method {
        method_of(&call.request)
    }

    fn execute(
        &self,
        call: Call,
        arrived: Time,
        waited: Nanos,
        spares: &mut FreeBuffers,
    ) -> ExecuteOutcome<Completion> {
        let Call { request, budget: mut may_spend, reply_max: longest, .. } = call;
        let mut reply = spares.take();
        may_spend.charge(waited);
        let visit = StoreVisit { now: unix_seconds(), reply_max: longest };
        let executed = AssertUnwindSafe(|| self.executor.execute(&request, &visit, &mut reply));
        let end = match catch_unwind(|| budget::with(may_spend, executed).0) {
            Ok(Ok(after)) => CallOutcome::Executed(after),
            Ok(Err(ExecuteError::Congested(_))) => CallOutcome::Rejected(RejectCode::Lock),
            Ok(Err(ExecuteError::TooLong)) => CallOutcome::TooLong,
            // A panic is a defect of one connection.
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
