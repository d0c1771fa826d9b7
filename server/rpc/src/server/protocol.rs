//! Leeward's protocol for the engine: the pure connection of `leeward-session`, with calls that handlers execute.

use super::cancelled::{CallKey, CancelledCalls};
use super::executor::CallExecutor;
use super::handler::{HandlerError, Request};
use crate::wire::{self, ErrorCode, FailureCode, Method, PayloadLimit, Regime, RejectCode, RequestId, Version};
use leeward_core::budget::Budget;
use leeward_core::server::{CoreId, RejectReason, SessionSlot};
use leeward_core::units::{self, Nanos, Tenant, Time};
use leeward_engine::{
    AnswerOutcome, CloseReason, ExecuteOutcome, FreeBuffers, Handle, PeerIdentity, PollContext, Protocol, ProtocolEvent,
};
use leeward_host::add;
use leeward_runtime::budget;
use leeward_runtime::tasks::{ReadyTask, TaskHandle};
use leeward_session::server::{Event, Permit, Reply, ServerConfig, ServerConnection, StatisticsQuery};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Calls that a connection may have unanswered; it is not read while it has.
const UNANSWERED: usize = 256;
/// How old statistics may be: putting them together takes as long as many requests.
const STATISTICS_MAX_AGE: Nanos = Nanos::from_millis(10);

/// Protocol of a core.
pub(crate) struct Rpc<E: CallExecutor> {
    execute: E,
    handle: Handle<Self>,
    payload: PayloadLimit,
    cancels: Arc<CancelledCalls>,
    /// The last statistics that were told, and when they were put together.
    statistics: Option<(Time, String)>,
}

/// A connection: its rules, and the tasks of its calls.
pub(crate) struct RpcConnection {
    session: ServerConnection,
    /// As many as it has calls unanswered, which is few.
    tasks: Vec<(Permit, TaskHandle)>,
    /// Unanswered calls that the client has cancelled and that may yet be in the queue.
    cancelled: Vec<CallKey>,
    /// Identity of the client, if it has proven one.
    peer: Option<Arc<PeerIdentity>>,
}

/// An admitted call on its way to a handler.
pub(crate) struct Call {
    pub(crate) call_ref: CallRef,
    /// Name of the call among all of the server's.
    pub(crate) key: CallKey,
    pub(crate) method: Method,
    pub(crate) budget: wire::Budget,
    /// Queueing delay that it may spend in here, what it has come through already included.
    pub(crate) queue_budget: Budget,
    pub(crate) payload: Vec<u8>,
    /// Buffer for the result, where the call is executed by threads that have no buffers of their own.
    pub(crate) reply: Vec<u8>,
    /// Identity of its client, if that has proven one.
    pub(crate) peer: Option<Arc<PeerIdentity>>,
    /// Executes it, if it is a task: the task has the payload then.
    pub(crate) task: Option<ReadyTask>,
}

/// Which call is meant.
pub(crate) enum CallRef {
    /// The call that this ticket came with.
    Permit(Permit),
    /// The call whose ticket its connection keeps, beside the task's handle.
    Task(RequestId),
}

impl CallRef {
    /// Leaves the ticket to the connection. `None` if it has it already.
    pub(crate) fn become_task(&mut self) -> Option<Permit> {
        let CallRef::Permit(ticket) = self else { return None };
        let request = ticket.request();
        match std::mem::replace(self, CallRef::Task(request)) {
            CallRef::Permit(ticket) => Some(ticket),
            CallRef::Task(_) => None,
        }
    }
}

/// A call's end, and its argument's buffer, which is used again.
pub(crate) struct CompletedCall {
    pub(crate) call_ref: CallRef,
    pub(crate) outcome: CallOutcome,
    pub(crate) spare: Vec<u8>,
}

/// How a call has ended.
pub(crate) enum CallOutcome {
    /// The controller said no when its turn had come.
    Rejected(RejectCode),
    /// A handler was asked.
    Executed {
        /// Whether there is a result.
        outcome: Result<(), HandlerError>,
        /// The result.
        reply: Vec<u8>,
    },
}

impl<E: CallExecutor> Rpc<E> {
    pub(crate) fn new(execute: E, handle: Handle<Self>, payload: PayloadLimit, cancels: &Arc<CancelledCalls>) -> Self {
        Rpc { execute, handle, payload, cancels: Arc::clone(cancels), statistics: None }
    }

    /// The client waits for a call no more. A task ends here; a call in the queue is dropped in its turn; one that has begun goes on.
    fn cancel(&mut self, conversation: &mut RpcConnection, request: RequestId, visit: &mut PollContext<'_, Call>) {
        let RpcConnection { session, tasks, cancelled, .. } = conversation;
        if let Some(place) = tasks.iter().position(|(ticket, _)| ticket.request() == request) {
            let (ticket, _task) = tasks.swap_remove(place);
            return settle(session, ticket, Reply::Reject(RejectCode::Cancelled, ""), visit);
        }
        let mark = CallKey { core: visit.core as u32, connection: visit.id, request };
        if !cancelled.contains(&mark) && self.cancels.note(mark) {
            cancelled.push(mark);
        }
    }

    fn forget_cancelled(&self, conversation: &mut RpcConnection) {
        conversation.cancelled.drain(..).for_each(|mark| _ = self.cancels.take(&mark));
    }

    /// Answers a question for the server's statistics. It needs no core's queue: a user who looks at a slow server must not
    /// wait behind its requests.
    fn send_statistics(
        &mut self,
        conversation: &mut RpcConnection,
        question: StatisticsQuery,
        visit: &mut PollContext<'_, Call>,
    ) {
        // Put together seldom, however often it is asked for.
        if self.statistics.as_ref().is_none_or(|(then, _)| visit.now.since(*then) >= STATISTICS_MAX_AGE) {
            self.statistics = Some((visit.now, self.handle.statistics().to_json()));
        }
        let told = self.statistics.as_ref().map_or("", |(_, told)| told);
        conversation.session.answer_query(question, told.as_bytes(), visit);
    }
}

/// Answers a call and counts it.
fn settle(session: &mut ServerConnection, ticket: Permit, reply: Reply<'_>, visit: &mut PollContext<'_, Call>) {
    if let Some(answered) = session.answer(ticket, reply, visit) {
        let is_known = answered.failure != Some(FailureCode::UnknownMethod);
        let method = is_known.then_some(units::Method(answered.method.0));
        match answered.rejection {
            Some(reason) => visit.count_refused(reason, answered.sojourn),
            None => visit.count_completed(method, answered.failure.is_none(), answered.sojourn),
        }
    }
}

impl<E: CallExecutor> Protocol for Rpc<E> {
    type Connection = RpcConnection;
    type Input = wire::Decoder;
    type Call = Call;
    type Completion = CompletedCall;

    const QUANTUM: usize = 64;
    const IS_SERIAL: bool = false;
    const HAS_TASKS: bool = E::HAS_TASKS;

    fn open(&mut self, visit: &mut PollContext<'_, Call>) -> RpcConnection {
        let has_credits = self.handle.gauges().credit_pool.is_some();
        let session = ServerConnection::new(ServerConfig {
            slot: SessionSlot(visit.id.slot),
            core: CoreId(visit.core as u32),
            regime: if has_credits { Regime::Credits } else { Regime::Open },
            payload_max: self.payload,
            unanswered_max: UNANSWERED,
            max_version: Version::NEWEST,
            tracks_call_age: self.handle.is_shadow(),
        });
        RpcConnection { session, tasks: Vec::new(), cancelled: Vec::new(), peer: None }
    }

    fn identify(conversation: &mut RpcConnection, peer: PeerIdentity, tenant: Tenant) {
        conversation.session.set_tenant(tenant);
        conversation.peer = Some(Arc::new(peer));
    }

    fn next(&mut self, conversation: &mut RpcConnection, visit: &mut PollContext<'_, Call>) -> ProtocolEvent<Call> {
        let event = match conversation.session.next(visit.wait, visit) {
            Ok(event) => event,
            Err(fatal) => {
                return ProtocolEvent::Close(CloseReason::Protocol {
                    code: fatal.code.number(),
                    message: fatal.message,
                });
            }
        };
        match event {
            Event::Incomplete => return ProtocolEvent::Incomplete,
            Event::Other => {}
            Event::Query(question) => self.send_statistics(conversation, question, visit),
            Event::Demand => add(&visit.counters.demands, 1),
            Event::Cancel(request) => self.cancel(conversation, request, visit),
            Event::Rejected(reason) => {
                visit.count_received();
                visit.count_refused(reason, visit.wait);
                if reason != RejectCode::NoCredit {
                    self.execute.on_arrival(visit.arrival());
                    return ProtocolEvent::Rejected;
                }
                add(&visit.counters.without_credit, 1);
                return ProtocolEvent::Violation;
            }
            Event::Call(call) => {
                visit.count_received();
                self.execute.on_arrival(call.permit.arrival());
                let (ticket, method, budget) = (call.permit, call.method, call.budget);
                let mut payload = visit.free_buffers.take();
                payload.extend_from_slice(call.payload);
                let may_spend = budget.remaining().map_or(visit.limits.budget, Budget::new);
                let mark = CallKey { core: visit.core as u32, connection: visit.id, request: ticket.request() };
                let whose = CallRef::Permit(ticket);
                let reply = if E::IS_EXTERNAL { visit.free_buffers.take() } else { Vec::new() };
                let peer = conversation.peer.clone();
                let mut call = Call {
                    call_ref: whose,
                    key: mark,
                    method,
                    budget,
                    queue_budget: may_spend,
                    payload,
                    reply,
                    peer,
                    task: None,
                };
                conversation.tasks.extend(self.execute.spawn(&mut call, visit.core, visit.id));
                return ProtocolEvent::Call { call, is_admitted: true };
            }
        }
        ProtocolEvent::Handled
    }

    fn answer(
        &mut self,
        conversation: &mut RpcConnection,
        done: CompletedCall,
        visit: &mut PollContext<'_, Call>,
    ) -> AnswerOutcome {
        let RpcConnection { session, tasks, cancelled, .. } = conversation;
        let ticket = match done.call_ref {
            CallRef::Permit(ticket) => Some(ticket),
            CallRef::Task(request) => {
                let place = tasks.iter().position(|(ticket, _)| ticket.request() == request);
                place.map(|place| tasks.swap_remove(place).0)
            }
        };
        if let Some(ticket) = ticket {
            // One that had begun when it was cancelled.
            if let Some(place) = cancelled.iter().position(|mark| mark.request == ticket.request()) {
                self.cancels.take(&cancelled.swap_remove(place));
            }
            let reply = match &done.outcome {
                CallOutcome::Rejected(reason) => Reply::Reject(*reason, ""),
                CallOutcome::Executed { outcome: Ok(()), reply } => Reply::Result(reply),
                CallOutcome::Executed { outcome: Err(failed), .. } => match failed {
                    HandlerError::Congested(congested) => Reply::Reject(RejectCode::Lock, congested.lock),
                    HandlerError::UnknownMethod => Reply::Failure(FailureCode::UnknownMethod, "no such method"),
                    HandlerError::Message(words) => Reply::Failure(FailureCode::Failed, words),
                },
            };
            settle(session, ticket, reply, visit);
        }
        if let CallOutcome::Executed { reply, .. } = done.outcome {
            visit.free_buffers.keep(reply);
        }
        visit.free_buffers.keep(done.spare);
        AnswerOutcome::Continue
    }

    fn send_credit(&mut self, conversation: &mut RpcConnection, visit: &mut PollContext<'_, Call>) -> bool {
        conversation.session.send_credit(visit)
    }

    fn close_with(
        &mut self,
        conversation: &mut RpcConnection,
        why: CloseReason,
        visit: &mut PollContext<'_, Call>,
    ) -> usize {
        let (code, words) = match &why {
            CloseReason::ConnectionLimit => {
                (ErrorCode::ConnectionLimit, "this server has as many connections as it takes")
            }
            CloseReason::Stopping => (ErrorCode::ShuttingDown, "this server is stopping"),
            CloseReason::Stopped => (ErrorCode::ShuttingDown, "this server has stopped"),
            CloseReason::Silence => (ErrorCode::Timeout, "nothing has come for too long"),
            CloseReason::SlowRequest => (ErrorCode::Timeout, "one frame has taken too long"),
            CloseReason::Unencrypted => {
                (ErrorCode::Unexpected, "this port speaks TLS alone: connect with TLS (--tls-ca)")
            }
            CloseReason::UnknownIdentity => {
                (ErrorCode::Unexpected, "this server takes no client of this certificate's name")
            }
            CloseReason::Protocol { code, message: words } => {
                (ErrorCode::from_number(*code).unwrap_or(ErrorCode::Malformed), words.as_str())
            }
        };
        self.forget_cancelled(conversation);
        conversation.session.close(code, words, visit)
    }

    fn close(&mut self, conversation: &mut RpcConnection, visit: &mut PollContext<'_, Call>) -> usize {
        self.forget_cancelled(conversation);
        conversation.session.abandon(visit)
    }

    fn input(conversation: &mut RpcConnection) -> &mut wire::Decoder {
        conversation.session.decoder()
    }

    fn may_read(conversation: &RpcConnection) -> bool {
        conversation.session.may_read()
    }

    fn unanswered(conversation: &RpcConnection) -> usize {
        conversation.session.unanswered()
    }

    fn is_closing(conversation: &RpcConnection) -> bool {
        conversation.session.is_closing()
    }

    fn answers_half_closed(conversation: &RpcConnection) -> bool {
        // docs/protocol.md, "The life of a connection".
        conversation.session.is_closing()
    }

    fn on_scan(conversation: &mut RpcConnection) -> bool {
        conversation.session.on_scan()
    }

    fn method(call: &Call) -> units::Method {
        units::Method(call.method.0)
    }

    fn execute(
        &self,
        call: Call,
        arrived: Time,
        waited: Nanos,
        spares: &mut FreeBuffers,
    ) -> ExecuteOutcome<CompletedCall> {
        let Call {
            call_ref: whose,
            key: mark,
            method,
            budget,
            queue_budget: mut may_spend,
            payload,
            reply: _,
            peer,
            task,
        } = call;
        if let Some(task) = task {
            budget::note_run_wait(waited);
            return ExecuteOutcome::Task(task);
        }
        if self.cancels.take(&mark) {
            return ExecuteOutcome::Done(CompletedCall {
                call_ref: whose,
                outcome: CallOutcome::Rejected(RejectCode::Cancelled),
                spare: payload,
            });
        }
        may_spend.charge(waited);
        let mut reply = spares.take();
        let request = Request { method, payload: &payload, arrival: arrived, budget, peer: peer.as_deref() };
        let call = AssertUnwindSafe(|| budget::with(may_spend, || self.execute.call(&request, &mut reply)).0);
        let outcome = catch_unwind(call).unwrap_or_else(|_| Err(HandlerError::panicked()));
        ExecuteOutcome::Done(CompletedCall {
            call_ref: whose,
            outcome: CallOutcome::Executed { outcome, reply },
            spare: payload,
        })
    }

    fn reject(call: Call, reason: RejectReason) -> CompletedCall {
        CompletedCall { call_ref: call.call_ref, outcome: CallOutcome::Rejected(reason.into()), spare: call.payload }
    }
}
