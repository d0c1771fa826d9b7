//! HTTP/1.1 for the engine: heads of GET requests in, responses out, one request at a time per connection.

use leeward_control::budget::Budget;
use leeward_control::server::RejectReason;
use leeward_control::units::{Nanos, Time};
use leeward_host::Desk;
use leeward_port::{Account, After, DropReason, Ending, Handle, Next, Ran, Spares, Visit};
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The longest head of a request, bytes.
const HEAD_MAX: usize = 8 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// One core's protocol.
pub(crate) struct Protocol<H: Fn(&str) -> String + Send + Sync + 'static> {
    handle: Handle<Self>,
    route: Arc<str>,
    handler: Arc<H>,
}

/// One connection.
pub(crate) struct Conversation {
    bytes: Vec<u8>,
    filled: usize,
    account: Account,
    /// Whether the client wants the connection closed after the answer under way.
    closes: bool,
}

/// An admitted request: the query of its target.
pub(crate) struct Call {
    query: String,
    arrived: Time,
    may_spend: Budget,
}

/// A request's end: the response's body, or why there is none.
pub(crate) struct Done {
    arrived: Time,
    end: Result<String, Option<DropReason>>,
}

/// A whole head.
struct Head {
    length: usize,
    is_get: bool,
    target: String,
    closes: bool,
}

impl<H: Fn(&str) -> String + Send + Sync + 'static> Protocol<H> {
    pub(crate) fn new(handle: Handle<Self>, route: Arc<str>, handler: Arc<H>) -> Self {
        Protocol { handle, route, handler }
    }
}

impl Conversation {
    /// The first head, if it is whole; an error is the status that it deserves.
    fn head(&self) -> Result<Option<Head>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(&self.bytes[..self.filled]) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.filled < HEAD_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("431 Request Header Fields Too Large"),
            Err(_) => return Err("400 Bad Request"),
        };
        let has = |name: &str, value: &str| {
            let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            found.any(|header| header.value.eq_ignore_ascii_case(value.as_bytes()))
        };
        let has_body = request.headers.iter().any(|header| {
            let is_length = header.name.eq_ignore_ascii_case("content-length") && header.value != b"0";
            is_length || header.name.eq_ignore_ascii_case("transfer-encoding")
        });
        if has_body {
            return Err("413 Content Too Large");
        }
        let is_old = request.version == Some(0);
        Ok(Some(Head {
            length,
            is_get: request.method == Some("GET"),
            target: request.path.unwrap_or_default().into(),
            closes: has("connection", "close") || (is_old && !has("connection", "keep-alive")),
        }))
    }
}

fn respond(out: &mut Vec<u8>, status: &str, kind: &str, body: &str, closes: bool) {
    let connection = if closes { "close" } else { "keep-alive" };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: {connection}\r\n");
    out.extend_from_slice(head.as_bytes());
    if status.starts_with("503") {
        out.extend_from_slice(b"retry-after: 1\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.as_bytes());
}

fn quietly() -> Ending {
    Ending::Protocol { code: 0, words: String::new() }
}

impl<H: Fn(&str) -> String + Send + Sync + 'static> leeward_port::Protocol for Protocol<H> {
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
        let head = match conversation.head() {
            Ok(Some(head)) => head,
            Ok(None) => return Next::Nothing,
            Err(status) => return Next::End(Ending::Protocol { code: 0, words: status.into() }),
        };
        conversation.bytes.copy_within(head.length..conversation.filled, 0);
        conversation.filled -= head.length;
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        let told = match path {
            _ if !head.is_get => Some(("405 Method Not Allowed", "text/plain", String::new())),
            "/healthz" => Some(("200 OK", "text/plain", "ok\n".into())),
            "/statistics" => Some(("200 OK", "application/json", self.handle.statistics().to_json())),
            path if path != &*self.route => Some(("404 Not Found", "text/plain", String::new())),
            _ => None,
        };
        if let Some((status, kind, body)) = told {
            respond(visit.out(), status, kind, &body, head.closes);
            return if head.closes { Next::End(quietly()) } else { Next::Handled };
        }
        conversation.closes = head.closes;
        if let Err(reason) = conversation.account.admit(visit) {
            let done = Done { arrived: visit.arrived(), end: Err(Some(reason)) };
            return match self.answer(conversation, done, visit) {
                After::GoOn => Next::Handled,
                After::End(why) => Next::End(why),
            };
        }
        let call = Call { query: query.into(), arrived: visit.arrived(), may_spend: visit.limits.budget };
        Next::Call { call, is_admitted: true }
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Self>) -> After {
        let dropped = done.end.as_ref().err().copied().flatten();
        if !conversation.account.settle(done.arrived, dropped, visit) {
            return After::GoOn;
        }
        let closes = conversation.closes;
        match done.end {
            Ok(body) => respond(visit.out(), "200 OK", "text/plain; charset=utf-8", &body, closes),
            Err(Some(reason)) => {
                let words = format!("overloaded: {reason:?}\n");
                respond(visit.out(), "503 Service Unavailable", "text/plain", &words, closes);
            }
            Err(None) => respond(visit.out(), "500 Internal Server Error", "text/plain", "", closes),
        }
        if closes { After::End(quietly()) } else { After::GoOn }
    }

    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> bool {
        conversation.account.credit(visit);
        false
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Self>) -> usize {
        let status = match &why {
            Ending::ConnectionLimit => "503 Service Unavailable",
            Ending::SlowRequest => "408 Request Timeout",
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

    fn may_read(conversation: &Conversation) -> bool {
        conversation.account.owed() == 0
    }

    fn owed(conversation: &Conversation) -> usize {
        conversation.account.owed()
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, _: &mut Spares) -> Ran<Done> {
        let mut may_spend = call.may_spend;
        may_spend.charge(waited);
        let handler = AssertUnwindSafe(|| (self.handler)(&call.query));
        let end = catch_unwind(|| budget::with(may_spend, handler).0).map_err(|_| None);
        Ran::Done(Done { arrived, end })
    }

    fn late(call: Call, reason: RejectReason) -> Done {
        Done { arrived: call.arrived, end: Err(Some(reason.into())) }
    }
}
