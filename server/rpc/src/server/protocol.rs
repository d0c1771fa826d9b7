//! Leeward's protocol for the engine: the pure connection of `leeward-session`, with calls that handlers execute.

use super::cancels::{Cancels, Mark};
use super::execute::Execute;
use super::handler::{Failed, Request};
use crate::wire::{self, DropReason, ErrorCode, FailureCode, Method, PayloadLimit, Regime, RequestId, Version};
use leeward_core::budget::Budget;
use leeward_core::server::{CoreId, RejectReason, SessionSlot};
use leeward_core::units::{self, Nanos, Tenant, Time};
use leeward_engine::{After, Ending, Handle, Next, PeerIdentity, Protocol, Ran, Spares, Visit};
use leeward_host::add;
use leeward_runtime::budget;
use leeward_runtime::tasks::{ReadyTask, TaskHandle};
use leeward_session::server::{Event, Question, Reply, ServerConfig, ServerConnection, Ticket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Calls that a connection may have unanswered; it is not read while it has.
const UNANSWERED: usize = 256;
/// How old statistics may be: putting them together takes as long as many requests.
const TOLD_AGAIN: Nanos = Nanos::from_millis(10);

/// Protocol of a core.
pub(crate) struct Rpc<E: Execute> {
    execute: E,
    handle: Handle<Self>,
    payload: PayloadLimit,
    cancels: Arc<Cancels>,
    /// The last statistics that were told, and when they were put together.
    told: Option<(Time, String)>,
}

/// A connection: its rules, and the tasks of its calls.
pub(crate) struct Conversation {
    session: ServerConnection,
    /// As many as it has calls unanswered, which is few.
    tasks: Vec<(Ticket, TaskHandle)>,
    /// Unanswered calls that the client has cancelled and that may yet be in the queue.
    cancelled: Vec<Mark>,
    /// Identity of the client, if it has proven one.
    peer: Option<Arc<PeerIdentity>>,
}

/// An admitted call on its way to a handler.
pub(crate) struct Call {
    pub(crate) whose: Whose,
    /// Name of the call among all of the server's.
    pub(crate) mark: Mark,
    pub(crate) method: Method,
    pub(crate) budget: wire::Budget,
    /// Queueing delay that it may spend in here, what it has come through already included.
    pub(crate) may_spend: Budget,
    pub(crate) payload: Vec<u8>,
    /// Buffer for the result, where the call is executed by threads that have no buffers of their own.
    pub(crate) reply: Vec<u8>,
    /// Identity of its client, if that has proven one.
    pub(crate) peer: Option<Arc<PeerIdentity>>,
    /// Executes it, if it is a task: the task has the payload then.
    pub(crate) task: Option<ReadyTask>,
}

/// Which call is meant.
pub(crate) enum Whose {
    /// The call that this ticket came with.
    Ticket(Ticket),
    /// The call whose ticket its connection keeps, beside the task's handle.
    Task(RequestId),
}

impl Whose {
    /// Leaves the ticket to the connection. `None` if it has it already.
    pub(crate) fn become_task(&mut self) -> Option<Ticket> {
        let Whose::Ticket(ticket) = self else { return None };
        let request = ticket.request();
        match std::mem::replace(self, Whose::Task(request)) {
            Whose::Ticket(ticket) => Some(ticket),
            Whose::Task(_) => None,
        }
    }
}

/// A call's end, and its argument's buffer, which is used again.
pub(crate) struct Done {
    pub(crate) whose: Whose,
    pub(crate) end: End,
    pub(crate) spare: Vec<u8>,
}

/// How a call has ended.
pub(crate) enum End {
    /// The controller said no when its turn had come.
    Late(DropReason),
    /// A handler was asked.
    Executed {
        /// Whether there is a result.
        outcome: Result<(), Failed>,
        /// The result.
        reply: Vec<u8>,
    },
}

impl<E: Execute> Rpc<E> {
    pub(crate) fn new(execute: E, handle: Handle<Self>, payload: PayloadLimit, cancels: &Arc<Cancels>) -> Self {
        Rpc { execute, handle, payload, cancels: Arc::clone(cancels), told: None }
    }

    /// The client waits for a call no more. A task ends here; a call in the queue is dropped in its turn; one that has begun goes on.
    fn cancel(&mut self, conversation: &mut Conversation, request: RequestId, visit: &mut Visit<'_, Call>) {
        let Conversation { session, tasks, cancelled, .. } = conversation;
        if let Some(place) = tasks.iter().position(|(ticket, _)| ticket.request() == request) {
            let (ticket, _task) = tasks.swap_remove(place);
            return settle(session, ticket, Reply::Drop(DropReason::Cancelled, ""), visit);
        }
        let mark = Mark { core: visit.core as u32, to: visit.id, request };
        if !cancelled.contains(&mark) && self.cancels.note(mark) {
            cancelled.push(mark);
        }
    }

    fn forget_all(&self, conversation: &mut Conversation) {
        conversation.cancelled.drain(..).for_each(|mark| _ = self.cancels.take(&mark));
    }

    /// Answers a question for the server's statistics. It needs no core's queue: a user who looks at a slow server must not
    /// wait behind its requests.
    fn tell(&mut self, conversation: &mut Conversation, question: Question, visit: &mut Visit<'_, Call>) {
        // Put together seldom, however often it is asked for.
        if self.told.as_ref().is_none_or(|(then, _)| visit.now.since(*then) >= TOLD_AGAIN) {
            self.told = Some((visit.now, self.handle.statistics().to_json()));
        }
        let told = self.told.as_ref().map_or("", |(_, told)| told);
        conversation.session.tell(question, told.as_bytes(), visit);
    }
}

/// Answers a call and counts it.
fn settle(session: &mut ServerConnection, ticket: Ticket, reply: Reply<'_>, visit: &mut Visit<'_, Call>) {
    if let Some(answered) = session.answer(ticket, reply, visit) {
        let is_known = answered.failed != Some(FailureCode::UnknownMethod);
        let method = is_known.then_some(units::Method(answered.method.0));
        match answered.dropped {
            Some(reason) => visit.count_dropped(reason, answered.sojourn),
            None => visit.count_completed(method, answered.failed.is_none(), answered.sojourn),
        }
    }
}

impl<E: Execute> Protocol for Rpc<E> {
    type Connection = Conversation;
    type Input = wire::Decoder;
    type Call = Call;
    type Done = Done;

    const TURN: usize = 64;
    const IS_SERIAL: bool = false;
    const HAS_TASKS: bool = E::TASKS;

    fn open(&mut self, visit: &mut Visit<'_, Call>) -> Conversation {
        let has_credits = self.handle.gauges().credit_pool.is_some();
        let session = ServerConnection::new(ServerConfig {
            slot: SessionSlot(visit.id.slot),
            core: CoreId(visit.core as u32),
            regime: if has_credits { Regime::Credits } else { Regime::Open },
            payload_max: self.payload,
            unanswered_max: UNANSWERED,
            newest: Version::NEWEST,
            reads_ages: self.handle.rehearses(),
        });
        Conversation { session, tasks: Vec::new(), cancelled: Vec::new(), peer: None }
    }

    fn identify(conversation: &mut Conversation, peer: PeerIdentity, tenant: Tenant) {
        conversation.session.count_for(tenant);
        conversation.peer = Some(Arc::new(peer));
    }

    fn next(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> Next<Call> {
        let event = match conversation.session.next(visit.waited, visit) {
            Ok(event) => event,
            Err(fatal) => {
                return Next::End(Ending::Protocol { code: fatal.code.number(), words: fatal.words });
            }
        };
        match event {
            Event::Nothing => return Next::Nothing,
            Event::Other => {}
            Event::Question(question) => self.tell(conversation, question, visit),
            Event::Demand => add(&visit.counters.demands, 1),
            Event::Cancel(request) => self.cancel(conversation, request, visit),
            Event::Dropped(reason) => {
                visit.count_received();
                visit.count_dropped(reason, visit.waited);
                if reason != DropReason::NoCredit {
                    self.execute.arrived(visit.arrived());
                    return Next::Refused;
                }
                add(&visit.counters.without_credit, 1);
                return Next::Unlawful;
            }
            Event::Call(call) => {
                visit.count_received();
                self.execute.arrived(call.ticket.arrived());
                let (ticket, method, budget) = (call.ticket, call.method, call.budget);
                let mut payload = visit.spares.take();
                payload.extend_from_slice(call.payload);
                let may_spend = budget.remaining().map_or(visit.limits.budget, Budget::of);
                let mark = Mark { core: visit.core as u32, to: visit.id, request: ticket.request() };
                let whose = Whose::Ticket(ticket);
                let reply = if E::ELSEWHERE { visit.spares.take() } else { Vec::new() };
                let peer = conversation.peer.clone();
                let mut call = Call { whose, mark, method, budget, may_spend, payload, reply, peer, task: None };
                conversation.tasks.extend(self.execute.begin(&mut call, visit.core, visit.id));
                return Next::Call { call, is_admitted: true };
            }
        }
        Next::Handled
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Call>) -> After {
        let Conversation { session, tasks, cancelled, .. } = conversation;
        let ticket = match done.whose {
            Whose::Ticket(ticket) => Some(ticket),
            Whose::Task(request) => {
                let place = tasks.iter().position(|(ticket, _)| ticket.request() == request);
                place.map(|place| tasks.swap_remove(place).0)
            }
        };
        if let Some(ticket) = ticket {
            // One that had begun when it was cancelled.
            if let Some(place) = cancelled.iter().position(|mark| mark.request == ticket.request()) {
                self.cancels.take(&cancelled.swap_remove(place));
            }
            let reply = match &done.end {
                End::Late(reason) => Reply::Drop(*reason, ""),
                End::Executed { outcome: Ok(()), reply } => Reply::Result(reply),
                End::Executed { outcome: Err(failed), .. } => match failed {
                    Failed::Congested(congested) => Reply::Drop(DropReason::Lock, congested.lock),
                    Failed::UnknownMethod => Reply::Failure(FailureCode::UnknownMethod, "no such method"),
                    Failed::Because(words) => Reply::Failure(FailureCode::Failed, words),
                },
            };
            settle(session, ticket, reply, visit);
        }
        if let End::Executed { reply, .. } = done.end {
            visit.spares.keep(reply);
        }
        visit.spares.keep(done.spare);
        After::GoOn
    }

    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> bool {
        conversation.session.credit(visit)
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Call>) -> usize {
        let (code, words) = match &why {
            Ending::ConnectionLimit => (ErrorCode::ConnectionLimit, "this server has as many connections as it takes"),
            Ending::Stopping => (ErrorCode::ShuttingDown, "this server is stopping"),
            Ending::Stopped => (ErrorCode::ShuttingDown, "this server has stopped"),
            Ending::Silence => (ErrorCode::Timeout, "nothing has come for too long"),
            Ending::SlowRequest => (ErrorCode::Timeout, "one frame has taken too long"),
            Ending::Unencrypted => (ErrorCode::Unexpected, "this port speaks TLS alone: connect with TLS (--tls-ca)"),
            Ending::Stranger => (ErrorCode::Unexpected, "this server takes no client of this certificate's name"),
            Ending::Protocol { code, words } => {
                (ErrorCode::from_number(*code).unwrap_or(ErrorCode::Malformed), words.as_str())
            }
        };
        self.forget_all(conversation);
        conversation.session.end(code, words, visit)
    }

    fn close(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> usize {
        self.forget_all(conversation);
        conversation.session.abandon(visit)
    }

    fn input(conversation: &mut Conversation) -> &mut wire::Decoder {
        conversation.session.decoder()
    }

    fn may_read(conversation: &Conversation) -> bool {
        conversation.session.may_read()
    }

    fn owed(conversation: &Conversation) -> usize {
        conversation.session.unanswered()
    }

    fn is_leaving(conversation: &Conversation) -> bool {
        conversation.session.is_leaving()
    }

    fn outlives_its_peer(conversation: &Conversation) -> bool {
        // docs/protocol.md, "The life of a connection".
        conversation.session.is_leaving()
    }

    fn on_sweep(conversation: &mut Conversation) -> bool {
        conversation.session.on_sweep()
    }

    fn method(call: &Call) -> units::Method {
        units::Method(call.method.0)
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, spares: &mut Spares) -> Ran<Done> {
        let Call { whose, mark, method, budget, mut may_spend, payload, reply: _, peer, task } = call;
        if let Some(task) = task {
            budget::turn_came_after(waited);
            return Ran::Task(task);
        }
        if self.cancels.take(&mark) {
            return Ran::Done(Done { whose, end: End::Late(DropReason::Cancelled), spare: payload });
        }
        may_spend.charge(waited);
        let mut reply = spares.take();
        let request = Request { method, payload: &payload, arrived, budget, peer: peer.as_deref() };
        let call = AssertUnwindSafe(|| budget::with(may_spend, || self.execute.call(&request, &mut reply)).0);
        let outcome = catch_unwind(call).unwrap_or_else(|_| Err(Failed::panicked()));
        Ran::Done(Done { whose, end: End::Executed { outcome, reply }, spare: payload })
    }

    fn late(call: Call, reason: RejectReason) -> Done {
        Done { whose: call.whose, end: End::Late(reason.into()), spare: call.payload }
    }
}
