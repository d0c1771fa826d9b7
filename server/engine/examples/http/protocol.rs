//! HTTP/1.1 for the engine: heads of GET requests in, responses out, one request at a time per
//! connection; and a server's builder. Does not contain the content of responses.

use leeward_core::budget::Budget;
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Time};
use leeward_engine::{
    AnswerOutcome, CloseReason, Config, ControllerSession, ExecuteOutcome, FreeBuffers, Handle, PollContext,
    ProtocolEvent, ReceiveBuffer, RejectCode, RequestOutcome, Server, ServerError,
};
use leeward_host::ConnectionContext;
use leeward_http1::{Fault, HEAD_MAX, NO_FIELDS, request, status_line};
use leeward_runtime::budget;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Builder of a server with one route.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http {
    port: Config,
}

impl Http {
    leeward_engine::server_settings!();

    /// Listens on `address` and answers `GET route` with the result of `handler` for the query (the
    /// part after `?`).
    ///
    /// # Errors
    /// See [`ServerError`].
    pub(crate) fn start(self, address: &str, route: &str, handler: impl Handler) -> Result<Server, ServerError> {
        let (route, handler) = (Arc::<str>::from(route), Arc::new(handler));
        let protocol = |handle: &_| HttpProtocol {
            handle: Clone::clone(handle),
            route: Arc::clone(&route),
            handler: Arc::clone(&handler),
        };
        self.port.start(address, protocol)
    }
}

/// The protocol's state on one core.
struct HttpProtocol<H: Handler> {
    handle: Handle<Self>,
    route: Arc<str>,
    handler: Arc<H>,
}

/// A function that answers a query.
pub(crate) trait Handler: Fn(&str) -> String + Send + Sync + 'static {}

impl<F: Fn(&str) -> String + Send + Sync + 'static> Handler for F {}

/// State of a connection.
struct HttpConnection {
    input: ReceiveBuffer,
    session: ControllerSession,
    /// Whether the connection closes after the current response.
    closes: bool,
    /// Fault that closes the connection.
    fault: Option<Fault>,
    /// Memory for the query of the next request, unless a call has it.
    spare: String,
}

/// An admitted request.
struct Call {
    query: String,
    arrival: Time,
    budget: Budget,
}

/// A completed request.
struct Completion {
    arrival: Time,
    /// The response's body, or the reason why there is none (`None`: a panic).
    outcome: Result<String, Option<RejectCode>>,
    /// Memory of the query, for the connection's next one.
    spare: String,
}

/// A response, without memory of its own.
struct Answer<'a> {
    status: u16,
    kind: &'a str,
    /// Header fields besides those of every response, each with its end of line.
    fields: &'a str,
    body: &'a str,
}

impl Answer<'_> {
    /// Makes a response without content.
    fn bare(status: u16) -> Self {
        // RFC 9110 §15.5.6.
        let fields = if status == 405 { "allow: GET\r\n" } else { "" };
        Answer { status, kind: "text/plain", fields, body: "" }
    }

    /// Makes the rejection of a request that may be sent again.
    fn refusal(reason: RejectCode) -> Self {
        let body = match reason {
            RejectCode::Delay => "Delay\n",
            RejectCode::Priority => "Priority\n",
            RejectCode::Concurrency => "Concurrency\n",
            RejectCode::Lock => "Lock\n",
            RejectCode::NoCredit => "NoCredit\n",
            RejectCode::ShuttingDown => "ShuttingDown\n",
            RejectCode::Cancelled => "Cancelled\n",
            RejectCode::Other => "Other\n",
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

impl<H: Handler> leeward_engine::Protocol for HttpProtocol<H> {
    type Connection = HttpConnection;
    type Input = ReceiveBuffer;
    type Call = Call;
    type Completion = Completion;

    const QUANTUM: usize = 16;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;

    fn open(&mut self, context: &mut PollContext<'_, Call>) -> HttpConnection {
        let controller_session = ControllerSession::open(context);
        HttpConnection {
            input: ReceiveBuffer::new(HEAD_MAX),
            session: controller_session,
            closes: false,
            fault: None,
            spare: String::new(),
        }
    }

    fn next(&mut self, connection: &mut HttpConnection, context: &mut PollContext<'_, Call>) -> ProtocolEvent<Call> {
        let mut fields = NO_FIELDS;
        let request = match request(connection.input.bytes(), &mut fields) {
            Ok(Some(request)) => request,
            Ok(None) => return ProtocolEvent::Incomplete,
            Err(fault) => {
                connection.fault = Some(fault);
                return ProtocolEvent::Close(CloseReason::SILENT);
            }
        };
        let (length, closes) = (request.length, request.closes_connection);
        connection.closes = closes;
        let statistics;
        let answer = match (request.refusal(), request.path) {
            (Some(fault), _) => Answer::bare(fault.status()),
            (_, "/healthz") => Answer { body: "ok\n", ..Answer::bare(200) },
            (_, "/statistics") => {
                statistics = self.handle.statistics().to_json();
                Answer { kind: "application/json", body: &statistics, ..Answer::bare(200) }
            }
            (_, path) if path != &*self.route => Answer::bare(404),
            _ => match connection.session.admit(Method::DEFAULT, context) {
                Ok(()) => {
                    let mut query = std::mem::take(&mut connection.spare);
                    query.clear();
                    query.push_str(request.query);
                    connection.input.consume(length);
                    let call = Call { query, arrival: context.arrival(), budget: context.limits.budget };
                    return ProtocolEvent::Call { call, is_admitted: true };
                }
                Err(reason) => {
                    connection.session.finish(context.arrival(), RequestOutcome::Rejected(reason), context);
                    Answer::refusal(reason)
                }
            },
        };
        connection.input.consume(length);
        answer.write(context.out(), closes);
        match answer.status {
            _ if closes => ProtocolEvent::Close(CloseReason::SILENT),
            503 => ProtocolEvent::Rejected,
            _ => ProtocolEvent::Handled,
        }
    }

    fn answer(
        &mut self,
        connection: &mut HttpConnection,
        done: Completion,
        context: &mut PollContext<'_, Call>,
    ) -> AnswerOutcome {
        let Completion { arrival: arrived, outcome: result, spare } = done;
        connection.spare = spare;
        let request_outcome = match &result {
            Err(Some(reason)) => RequestOutcome::Rejected(*reason),
            result => RequestOutcome::Answered { succeeded: result.is_ok() },
        };
        if !connection.session.finish(arrived, request_outcome, context) {
            return AnswerOutcome::Continue;
        }
        let answer = match &result {
            Ok(body) => Answer { kind: "text/plain; charset=utf-8", body, ..Answer::bare(200) },
            Err(Some(reason)) => Answer::refusal(*reason),
            Err(None) => Answer::bare(500),
        };
        answer.write(context.out(), connection.closes);
        if connection.closes { AnswerOutcome::Close(CloseReason::SILENT) } else { AnswerOutcome::Continue }
    }

    fn send_credit(&mut self, connection: &mut HttpConnection, context: &mut PollContext<'_, Call>) -> bool {
        connection.session.credit(context);
        false
    }

    fn close_with(
        &mut self,
        connection: &mut HttpConnection,
        reason: CloseReason,
        context: &mut PollContext<'_, Call>,
    ) -> usize {
        let status = match &reason {
            CloseReason::ConnectionLimit => 503,
            CloseReason::SlowRequest => 408,
            CloseReason::Unencrypted => 426,
            CloseReason::UnknownIdentity => 403,
            CloseReason::Protocol { .. } => connection.fault.map_or(0, Fault::status),
            CloseReason::Stopping | CloseReason::Stopped | CloseReason::Silence => 0,
        };
        if status > 0 {
            Answer::bare(status).write(context.out(), true);
        }
        connection.session.abandon(context)
    }

    fn close(&mut self, connection: &mut HttpConnection, context: &mut PollContext<'_, Call>) -> usize {
        connection.session.abandon(context)
    }

    fn input(connection: &mut HttpConnection) -> &mut ReceiveBuffer {
        &mut connection.input
    }

    fn unanswered(connection: &HttpConnection) -> usize {
        connection.session.owed()
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, _: &mut FreeBuffers) -> ExecuteOutcome<Completion> {
        let Call { query, budget: mut remaining, .. } = call;
        remaining.charge(waited);
        let handler = AssertUnwindSafe(|| (self.handler)(&query));
        let result = catch_unwind(|| budget::with(remaining, handler).0).map_err(|_| None);
        ExecuteOutcome::Done(Completion { arrival: arrived, outcome: result, spare: query })
    }

    fn reject(call: Call, reason: RejectReason) -> Completion {
        Completion { arrival: call.arrival, outcome: Err(Some(reason.into())), spare: call.query }
    }
}
