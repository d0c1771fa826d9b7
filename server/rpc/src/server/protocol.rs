//! Leeward's protocol for the engine: the pure connection of `leeward-session`, with calls that
//! handlers execute.

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

/// Maximum number of unanswered calls of a connection; the server stops reading it there.
const UNANSWERED: usize = 256;
/// Maximum age of cached statistics: collecting them takes as long as many requests.
const STATISTICS_MAX_AGE: Nanos = Nanos::from_millis(10);

/// Protocol of one core.
pub(crate) struct Rpc<E: CallExecutor> {
    execute: E,
    handle: Handle<Self>,
    payload: PayloadLimit,
    cancels: Arc<CancelledCalls>,
    /// Last statistics sent, with their time of collection.
    statistics: Option<(Time, String)>,
}

/// A connection: its session, and the tasks of its calls.
pub(crate) struct RpcConnection {
    session: ServerConnection,
    /// One entry per unanswered call with a task, so few.
    tasks: Vec<(Permit, TaskHandle)>,
    /// Unanswered calls that the client has cancelled and that may still be in the queue.
    cancelled: Vec<CallKey>,
    /// Identity of the client, if proven.
    peer: Option<Arc<PeerIdentity>>,
}

/// An admitted call on its way to a handler.
pub(crate) struct Call {
    pub(crate) call_ref: CallRef,
    /// Key of the call among all calls of the server.
    pub(crate) key: CallKey,
    pub(crate) method: Method,
    pub(crate) budget: wire::Budget,
    /// Queueing delay that the call may spend in this server, past delay already deducted.
    pub(crate) queue_budget: Budget,
    pub(crate) payload: Vec<u8>,
    /// Buffer for the result, if threads without their own buffers execute the call.
    pub(crate) reply: Vec<u8>,
    /// Identity of the client, if proven.
    pub(crate) peer: Option<Arc<PeerIdentity>>,
    /// Task of the call, if calls run as tasks; the task holds the payload then.
    pub(crate) task: Option<ReadyTask>,
}

/// Reference to a call.
pub(crate) enum CallRef {
    /// The call with this permit.
    Permit(Permit),
    /// The call whose permit its connection keeps, beside the task's handle.
    Task(RequestId),
}

impl CallRef {
    /// Hands the permit over to the connection. `None` if the connection has it already.
    pub(crate) fn become_task(&mut self) -> Option<Permit> {
        let CallRef::Permit(permit) = self else { return None };
        let request = permit.request();
        match std::mem::replace(self, CallRef::Task(request)) {
            CallRef::Permit(permit) => Some(permit),
            CallRef::Task(_) => None,
        }
    }
}

/// Outcome of a call, with the argument's buffer for reuse.
pub(crate) struct CompletedCall {
    pub(crate) call_ref: CallRef,
    pub(crate) outcome: CallOutcome,
    pub(crate) spare: Vec<u8>,
}

/// How a call has ended.
pub(crate) enum CallOutcome {
    /// The controller rejected the call when it was dequeued.
    Rejected(RejectCode),
    /// A handler executed the call.
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

    /// Cancels a call: a task ends here, a queued call is rejected when dequeued, a running one
    /// continues.
    fn cancel(&mut self, connection: &mut RpcConnection, request: RequestId, context: &mut PollContext<'_, Call>) {
        let RpcConnection { session, tasks, cancelled, .. } = connection;
        if let Some(index) = tasks.iter().position(|(permit, _)| permit.request() == request) {
            let (permit, _task) = tasks.swap_remove(index);
            return settle(session, permit, Reply::Reject(RejectCode::Cancelled, ""), context);
        }
        let key = CallKey { core: context.core as u32, connection: context.id, request };
        if !cancelled.contains(&key) && self.cancels.note(key) {
            cancelled.push(key);
        }
    }

    fn forget_cancelled(&self, connection: &mut RpcConnection) {
        connection.cancelled.drain(..).for_each(|key| _ = self.cancels.take(&key));
    }

    /// Answers a query for the server's statistics.
    ///
    /// This bypasses the cores' queues: users inspect slow servers, and must not wait for queued
    /// requests.
    fn send_statistics(
        &mut self,
        connection: &mut RpcConnection,
        query: StatisticsQuery,
        context: &mut PollContext<'_, Call>,
    ) {
        // Collect them rarely, however often clients ask.
        if self
            .statistics
            .as_ref()
            .is_none_or(|(collected_at, _)| context.now.since(*collected_at) >= STATISTICS_MAX_AGE)
        {
            self.statistics = Some((context.now, self.handle.statistics().to_json()));
        }
        let json = self.statistics.as_ref().map_or("", |(_, json)| json);
        connection.session.answer_query(query, json.as_bytes(), context);
    }
}

/// Answers a call and counts it.
fn settle(session: &mut ServerConnection, permit: Permit, reply: Reply<'_>, context: &mut PollContext<'_, Call>) {
    if let Some(answered) = session.answer(permit, reply, context) {
        let is_known = answered.failure != Some(FailureCode::UnknownMethod);
        let method = is_known.then_some(units::Method(answered.method.0));
        match answered.rejection {
            Some(reason) => context.count_refused(reason, answered.sojourn),
            None => context.count_completed(method, answered.failure.is_none(), answered.sojourn),
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

    fn open(&mut self, context: &mut PollContext<'_, Call>) -> RpcConnection {
        let has_credits = self.handle.gauges().credit_pool.is_some();
        let session = ServerConnection::new(ServerConfig {
            slot: SessionSlot(context.id.slot),
            core: CoreId(context.core as u32),
            regime: if has_credits { Regime::Credits } else { Regime::Open },
            payload_max: self.payload,
            unanswered_max: UNANSWERED,
            max_version: Version::NEWEST,
            tracks_call_age: self.handle.is_shadow(),
        });
        RpcConnection { session, tasks: Vec::new(), cancelled: Vec::new(), peer: None }
    }

    fn identify(connection: &mut RpcConnection, peer: PeerIdentity, tenant: Tenant) {
        connection.session.set_tenant(tenant);
        connection.peer = Some(Arc::new(peer));
    }

    fn next(&mut self, connection: &mut RpcConnection, context: &mut PollContext<'_, Call>) -> ProtocolEvent<Call> {
        let event = match connection.session.next(context.wait, context) {
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
            Event::Query(query) => self.send_statistics(connection, query, context),
            Event::Demand => add(&context.counters.demands, 1),
            Event::Cancel(request) => self.cancel(connection, request, context),
            Event::Rejected(reason) => {
                context.count_received();
                context.count_refused(reason, context.wait);
                if reason != RejectCode::NoCredit {
                    self.execute.on_arrival(context.arrival());
                    return ProtocolEvent::Rejected;
                }
                add(&context.counters.without_credit, 1);
                return ProtocolEvent::Violation;
            }
            Event::Call(call) => {
                context.count_received();
                self.execute.on_arrival(call.permit.arrival());
                let (permit, method, budget) = (call.permit, call.method, call.budget);
                let mut payload = context.free_buffers.take();
                payload.extend_from_slice(call.payload);
                let delay_budget = budget.remaining().map_or(context.limits.budget, Budget::new);
                let call_key = CallKey { core: context.core as u32, connection: context.id, request: permit.request() };
                let reference = CallRef::Permit(permit);
                let reply = if E::IS_EXTERNAL { context.free_buffers.take() } else { Vec::new() };
                let peer = connection.peer.clone();
                let mut call = Call {
                    call_ref: reference,
                    key: call_key,
                    method,
                    budget,
                    queue_budget: delay_budget,
                    payload,
                    reply,
                    peer,
                    task: None,
                };
                connection.tasks.extend(self.execute.spawn(&mut call, context.core, context.id));
                return ProtocolEvent::Call { call, is_admitted: true };
            }
        }
        ProtocolEvent::Handled
    }

    fn answer(
        &mut self,
        connection: &mut RpcConnection,
        completed: CompletedCall,
        context: &mut PollContext<'_, Call>,
    ) -> AnswerOutcome {
        let RpcConnection { session, tasks, cancelled, .. } = connection;
        let permit = match completed.call_ref {
            CallRef::Permit(permit) => Some(permit),
            CallRef::Task(request) => {
                let index = tasks.iter().position(|(permit, _)| permit.request() == request);
                index.map(|index| tasks.swap_remove(index).0)
            }
        };
        if let Some(permit) = permit {
            // The call had begun when it was cancelled.
            if let Some(index) = cancelled.iter().position(|key| key.request == permit.request()) {
                self.cancels.take(&cancelled.swap_remove(index));
            }
            let reply = match &completed.outcome {
                CallOutcome::Rejected(reason) => Reply::Reject(*reason, ""),
                CallOutcome::Executed { outcome: Ok(()), reply } => Reply::Result(reply),
                CallOutcome::Executed { outcome: Err(failed), .. } => match failed {
                    HandlerError::Congested(congested) => Reply::Reject(RejectCode::Lock, congested.lock),
                    HandlerError::UnknownMethod => Reply::Failure(FailureCode::UnknownMethod, "no such method"),
                    HandlerError::Message(message) => Reply::Failure(FailureCode::Failed, message),
                },
            };
            settle(session, permit, reply, context);
        }
        if let CallOutcome::Executed { reply, .. } = completed.outcome {
            context.free_buffers.keep(reply);
        }
        context.free_buffers.keep(completed.spare);
        AnswerOutcome::Continue
    }

    fn send_credit(&mut self, connection: &mut RpcConnection, context: &mut PollContext<'_, Call>) -> bool {
        connection.session.send_credit(context)
    }

    fn close_with(
        &mut self,
        connection: &mut RpcConnection,
        reason: CloseReason,
        context: &mut PollContext<'_, Call>,
    ) -> usize {
        let (code, text) = match &reason {
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
            CloseReason::Protocol { code, message: text } => {
                (ErrorCode::from_number(*code).unwrap_or(ErrorCode::Malformed), text.as_str())
            }
        };
        self.forget_cancelled(connection);
        connection.session.close(code, text, context)
    }

    fn close(&mut self, connection: &mut RpcConnection, context: &mut PollContext<'_, Call>) -> usize {
        self.forget_cancelled(connection);
        connection.session.abandon(context)
    }

    fn input(connection: &mut RpcConnection) -> &mut wire::Decoder {
        connection.session.decoder()
    }

    fn may_read(connection: &RpcConnection) -> bool {
        connection.session.may_read()
    }

    fn unanswered(connection: &RpcConnection) -> usize {
        connection.session.unanswered()
    }

    fn is_closing(connection: &RpcConnection) -> bool {
        connection.session.is_closing()
    }

    fn answers_half_closed(connection: &RpcConnection) -> bool {
        // docs/protocol.md, "The life of a connection".
        connection.session.is_closing()
    }

    fn on_scan(connection: &mut RpcConnection) -> bool {
        connection.session.on_scan()
    }

    fn method(call: &Call) -> units::Method {
        units::Method(call.method.0)
    }

    fn execute(
        &self,
        call: Call,
        arrived_at: Time,
        wait: Nanos,
        buffers: &mut FreeBuffers,
    ) -> ExecuteOutcome<CompletedCall> {
        let Call {
            call_ref: reference,
            key: call_key,
            method,
            budget,
            queue_budget: mut delay_budget,
            payload,
            reply: _,
            peer,
            task,
        } = call;
        if let Some(task) = task {
            budget::note_run_wait(wait);
            return ExecuteOutcome::Task(task);
        }
        if self.cancels.take(&call_key) {
            return ExecuteOutcome::Done(CompletedCall {
                call_ref: reference,
                outcome: CallOutcome::Rejected(RejectCode::Cancelled),
                spare: payload,
            });
        }
        delay_budget.charge(wait);
        let mut reply = buffers.take();
        let request = Request { method, payload: &payload, arrival: arrived_at, budget, peer: peer.as_deref() };
        let call = AssertUnwindSafe(|| budget::with(delay_budget, || self.execute.call(&request, &mut reply)).0);
        let outcome = catch_unwind(call).unwrap_or_else(|_| Err(HandlerError::panicked()));
        ExecuteOutcome::Done(CompletedCall {
            call_ref: reference,
            outcome: CallOutcome::Executed { outcome, reply },
            spare: payload,
        })
    }

    fn reject(call: Call, reason: RejectReason) -> CompletedCall {
        CompletedCall { call_ref: call.call_ref, outcome: CallOutcome::Rejected(reason.into()), spare: call.payload }
    }
}
