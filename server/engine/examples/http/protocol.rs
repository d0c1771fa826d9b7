//! HTTP/1.1 for the engine: heads of GET requests in, responses out, one request at a time per connection; and the builder
//! of a server. Never here: what a request is answered.

use leeward_core::budget::Budget;
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Time};
use leeward_engine::{
    Account, After, Config, DropReason, Ending, Handle, Next, Ran, ReceiveBuffer, Server, ServerError, Settled, Spares,
    Visit,
};
use leeward_host::Desk;
use leeward_http1::{Fault, LONGEST, NO_FIELDS, request, status_line};
use leeward_runtime::budget;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A server of one route, to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http {
    port: Config,
}

impl Http {
    leeward_engine::server_settings!();

    /// Listens on `address` and answers `GET route` with what `handler` makes of the query (the part behind `?`).
    ///
    /// # Errors
    /// See [`ServerError`].
    pub(crate) fn start(self, address: &str, route: &str, handler: impl Handler) -> Result<Server, ServerError> {
        let (route, handler) = (Arc::<str>::from(route), Arc::new(handler));
        let protocol = |handle: &_| Protocol {
            handle: Clone::clone(handle),
            route: Arc::clone(&route),
            handler: Arc::clone(&handler),
        };
        self.port.start(address, protocol)
    }
}

/// Protocol of a core.
struct Protocol<H: Handler> {
    handle: Handle<Self>,
    route: Arc<str>,
    handler: Arc<H>,
}

/// Answers a query.
pub(crate) trait Handler: Fn(&str) -> String + Send + Sync + 'static {}

impl<F: Fn(&str) -> String + Send + Sync + 'static> Handler for F {}

/// A connection.
struct Conversation {
    input: ReceiveBuffer,
    account: Account,
    /// Whether the connection ends after the answer under way.
    closes: bool,
    /// Why the connection ends.
    fault: Option<Fault>,
    /// Memory for the query of the next request, unless a call has it.
    spare: String,
}

/// An admitted request.
struct Call {
    query: String,
    arrived: Time,
    may_spend: Budget,
}

/// A request's end.
struct Done {
    arrived: Time,
    /// The response's body, or why there is none (`None`: a panic).
    end: Result<String, Option<DropReason>>,
    /// Memory of the query, for the connection's next one.
    spare: String,
}

/// An answer without memory of its own.
struct Answer<'a> {
    status: u16,
    kind: &'a str,
    /// Fields besides those that each answer has, with their ends of line.
    fields: &'a str,
    body: &'a str,
}

impl Answer<'_> {
    /// An answer without content.
    fn bare(status: u16) -> Self {
        // RFC 9110 §15.5.6.
        let fields = if status == 405 { "allow: GET\r\n" } else { "" };
        Answer { status, kind: "text/plain", fields, body: "" }
    }

    /// The refusal of a request that may be sent again.
    fn refusal(reason: DropReason) -> Self {
        let body = match reason {
            DropReason::Delay => "Delay\n",
            DropReason::Priority => "Priority\n",
            DropReason::Concurrency => "Concurrency\n",
            DropReason::Lock => "Lock\n",
            DropReason::NoCredit => "NoCredit\n",
            DropReason::ShuttingDown => "ShuttingDown\n",
            DropReason::Cancelled => "Cancelled\n",
            DropReason::Other => "Other\n",
        };
        Answer { fields: "retry-after: 1\r\n", body, ..Answer::bare(503) }
    }

    fn write(&self, out: &mut Vec<u8>, closes: bool) {
        let Answer { status, kind, fields, body } = self;
        let (status, connection) = (status_line(*status), if closes { "close" } else { "keep-alive" });
        // Writing into memory cannot fail.
        let _ = write!(
            out,
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{fields}connection: {connection}\r\n\r\n{body}",
            body.len()
        );
    }
}

impl<H: Handler> leeward_engine::Protocol for Protocol<H> {
    type Connection = Conversation;
    type Input = ReceiveBuffer;
    type Call = Call;
    type Done = Done;

    const TURN: usize = 16;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;

    fn open(&mut self, visit: &mut Visit<'_, Call>) -> Conversation {
        let account = Account::open(visit);
        Conversation { input: ReceiveBuffer::new(LONGEST), account, closes: false, fault: None, spare: String::new() }
    }

    fn next(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> Next<Call> {
        let mut fields = NO_FIELDS;
        let request = match request(conversation.input.bytes(), &mut fields) {
            Ok(Some(request)) => request,
            Ok(None) => return Next::Nothing,
            Err(fault) => {
                conversation.fault = Some(fault);
                return Next::End(Ending::QUIET);
            }
        };
        let (length, closes) = (request.length, request.closes);
        conversation.closes = closes;
        let statistics;
        let answer = match (request.refusal(), request.path) {
            (Some(fault), _) => Answer::bare(fault.status()),
            (_, "/healthz") => Answer { body: "ok\n", ..Answer::bare(200) },
            (_, "/statistics") => {
                statistics = self.handle.statistics().to_json();
                Answer { kind: "application/json", body: &statistics, ..Answer::bare(200) }
            }
            (_, path) if path != &*self.route => Answer::bare(404),
            _ => match conversation.account.admit(Method::DEFAULT, visit) {
                Ok(()) => {
                    let mut query = std::mem::take(&mut conversation.spare);
                    query.clear();
                    query.push_str(request.query);
                    conversation.input.consume(length);
                    let call = Call { query, arrived: visit.arrived(), may_spend: visit.limits.budget };
                    return Next::Call { call, is_admitted: true };
                }
                Err(reason) => {
                    conversation.account.settle(visit.arrived(), Settled::Dropped(reason), visit);
                    Answer::refusal(reason)
                }
            },
        };
        conversation.input.consume(length);
        answer.write(visit.out(), closes);
        match answer.status {
            _ if closes => Next::End(Ending::QUIET),
            503 => Next::Refused,
            _ => Next::Handled,
        }
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Call>) -> After {
        let Done { arrived, end, spare } = done;
        conversation.spare = spare;
        let settled = match &end {
            Err(Some(reason)) => Settled::Dropped(*reason),
            end => Settled::Answered { succeeded: end.is_ok() },
        };
        if !conversation.account.settle(arrived, settled, visit) {
            return After::GoOn;
        }
        let answer = match &end {
            Ok(body) => Answer { kind: "text/plain; charset=utf-8", body, ..Answer::bare(200) },
            Err(Some(reason)) => Answer::refusal(*reason),
            Err(None) => Answer::bare(500),
        };
        answer.write(visit.out(), conversation.closes);
        if conversation.closes { After::End(Ending::QUIET) } else { After::GoOn }
    }

    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> bool {
        conversation.account.credit(visit);
        false
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Call>) -> usize {
        let status = match &why {
            Ending::ConnectionLimit => 503,
            Ending::SlowRequest => 408,
            Ending::Unencrypted => 426,
            Ending::Stranger => 403,
            Ending::Protocol { .. } => conversation.fault.map_or(0, Fault::status),
            Ending::Stopping | Ending::Stopped | Ending::Silence => 0,
        };
        if status > 0 {
            Answer::bare(status).write(visit.out(), true);
        }
        conversation.account.abandon(visit)
    }

    fn close(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> usize {
        conversation.account.abandon(visit)
    }

    fn input(conversation: &mut Conversation) -> &mut ReceiveBuffer {
        &mut conversation.input
    }

    fn owed(conversation: &Conversation) -> usize {
        conversation.account.owed()
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, _: &mut Spares) -> Ran<Done> {
        let Call { query, mut may_spend, .. } = call;
        may_spend.charge(waited);
        let handler = AssertUnwindSafe(|| (self.handler)(&query));
        let end = catch_unwind(|| budget::with(may_spend, handler).0).map_err(|_| None);
        Ran::Done(Done { arrived, end, spare: query })
    }

    fn late(call: Call, reason: RejectReason) -> Done {
        Done { arrived: call.arrived, end: Err(Some(reason.into())), spare: call.query }
    }
}
