//! HTTP/1.1 for the engine: heads of GET requests in, responses out, one request at a time per connection.

use leeward_control::budget::Budget;
use leeward_control::server::RejectReason;
use leeward_control::units::{Method, Nanos, Time};
use leeward_host::Desk;
use leeward_port::{Account, After, DropReason, Ending, Handle, Next, Ran, Settled, Spares, Visit};
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The longest head of a request, bytes.
const HEAD_MAX: usize = 8 * 1024;

/// Protocol of a core.
pub(crate) struct Protocol<H: Handler> {
    pub(crate) handle: Handle<Self>,
    pub(crate) route: Arc<str>,
    pub(crate) handler: Arc<H>,
}

/// Answers a query.
pub(crate) trait Handler: Fn(&str) -> String + Send + Sync + 'static {}

impl<F: Fn(&str) -> String + Send + Sync + 'static> Handler for F {}

/// A connection.
pub(crate) struct Conversation {
    bytes: Vec<u8>,
    filled: usize,
    account: Account,
    /// Whether the connection ends after the answer under way.
    closes: bool,
}

/// An admitted request.
pub(crate) struct Call {
    query: String,
    arrived: Time,
    may_spend: Budget,
}

/// A request's arrival and its end: the response's body, or why there is none (`None`: a panic).
pub(crate) struct Done(Time, Result<String, Option<DropReason>>);

/// A whole head.
struct Head {
    length: usize,
    is_get: bool,
    target: String,
    closes: bool,
}

/// The head at the beginning of `bytes`, if it is whole; an error is the status that it deserves.
fn head(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes).map_err(|_| "400 Bad Request")? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if bytes.len() < HEAD_MAX => return Ok(None),
        httparse::Status::Partial => return Err("431 Request Header Fields Too Large"),
    };
    let value = |name: &str| {
        let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        found.next().map(|header| header.value.to_ascii_lowercase())
    };
    // A body would be taken for the next head.
    if value("transfer-encoding").is_some() || value("content-length").is_some_and(|length| length != b"0") {
        return Err("413 Content Too Large");
    }
    let (is_old, connection) = (request.version == Some(0), value("connection").unwrap_or_default());
    let closes = connection == b"close" || (is_old && connection != b"keep-alive");
    let target = request.path.unwrap_or_default().into();
    Ok(Some(Head { length, is_get: request.method == Some("GET"), target, closes }))
}

fn respond(out: &mut Vec<u8>, status: &str, kind: &str, body: &str, closes: bool) {
    let (length, connection) = (body.len(), if closes { "close" } else { "keep-alive" });
    let head = format!("content-type: {kind}\r\ncontent-length: {length}\r\nconnection: {connection}");
    out.extend_from_slice(format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}").as_bytes());
}

impl<H: Handler> leeward_port::Protocol for Protocol<H> {
    type Connection = Conversation;
    type Call = Call;
    type Done = Done;

    const TURN: usize = 16;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;

    fn open(&mut self, visit: &mut Visit<'_, Self>) -> Conversation {
        Conversation { bytes: Vec::new(), filled: 0, account: Account::open(visit), closes: false }
    }

    fn next(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> Next<Call> {
        let head = match head(&conversation.bytes[..conversation.filled]) {
            Ok(Some(head)) => head,
            Ok(None) => return Next::Nothing,
            Err(status) => return Next::End(Ending::Protocol { code: 0, words: status.into() }),
        };
        conversation.bytes.copy_within(head.length..conversation.filled, 0);
        conversation.filled -= head.length;
        conversation.closes = head.closes;
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        let (status, kind, body) = match path {
            _ if !head.is_get => ("405 Method Not Allowed", "text/plain", String::new()),
            "/healthz" => ("200 OK", "text/plain", "ok\n".into()),
            "/statistics" => ("200 OK", "application/json", self.handle.statistics().to_json()),
            path if path != &*self.route => ("404 Not Found", "text/plain", String::new()),
            _ => match conversation.account.admit(Method::DEFAULT, visit) {
                Ok(()) => {
                    let call = Call { query: query.into(), arrived: visit.arrived(), may_spend: visit.limits.budget };
                    return Next::Call { call, is_admitted: true };
                }
                Err(reason) => {
                    conversation.account.settle(visit.arrived(), Settled::Dropped(reason), visit);
                    ("503 Service Unavailable", "text/plain", format!("{reason:?}\n"))
                }
            },
        };
        respond(visit.out(), status, kind, &body, head.closes);
        match path {
            _ if head.closes => Next::End(Ending::QUIET),
            path if path == &*self.route => Next::Refused,
            _ => Next::Handled,
        }
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Self>) -> After {
        let Done(arrived, end) = done;
        let settled = match &end {
            Err(Some(reason)) => Settled::Dropped(*reason),
            end => Settled::Answered { succeeded: end.is_ok() },
        };
        if !conversation.account.settle(arrived, settled, visit) {
            return After::GoOn;
        }
        let (status, body) = match end {
            Ok(body) => ("200 OK", body),
            Err(Some(reason)) => ("503 Service Unavailable", format!("{reason:?}\n")),
            Err(None) => ("500 Internal Server Error", String::new()),
        };
        respond(visit.out(), status, "text/plain; charset=utf-8", &body, conversation.closes);
        if conversation.closes { After::End(Ending::QUIET) } else { After::GoOn }
    }

    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> bool {
        conversation.account.credit(visit);
        false
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Self>) -> usize {
        let status = match &why {
            Ending::ConnectionLimit => "503 Service Unavailable",
            Ending::SlowRequest => "408 Request Timeout",
            Ending::Unencrypted => "426 Upgrade Required",
            Ending::Stranger => "403 Forbidden",
            Ending::Protocol { words, .. } => words,
            Ending::Stopping | Ending::Stopped | Ending::Silence => "",
        };
        if !status.is_empty() {
            respond(visit.out(), status, "text/plain", "", true);
        }
        conversation.account.abandon(visit)
    }

    fn close(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> usize {
        conversation.account.abandon(visit)
    }

    fn spare(conversation: &mut Conversation) -> &mut [u8] {
        conversation.bytes.resize(HEAD_MAX, 0);
        &mut conversation.bytes[conversation.filled..]
    }

    fn filled(conversation: &mut Conversation, count: usize) {
        conversation.filled += count;
    }

    fn buffered(conversation: &Conversation) -> usize {
        conversation.filled
    }

    fn owed(conversation: &Conversation) -> usize {
        conversation.account.owed()
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, _: &mut Spares) -> Ran<Done> {
        let mut may_spend = call.may_spend;
        may_spend.charge(waited);
        let handler = AssertUnwindSafe(|| (self.handler)(&call.query));
        Ran::Done(Done(arrived, catch_unwind(|| budget::with(may_spend, handler).0).map_err(|_| None)))
    }

    fn late(call: Call, reason: RejectReason) -> Done {
        Done(call.arrived, Err(Some(reason.into())))
    }
}
