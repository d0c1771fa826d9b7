//! An entry of the access log, from the head of its request to the end of its answer. Texts are
//! cut, so that a queue of entries has a bounded size. Does not contain the text of a line.

use super::LogSender;
use http::header::{AsHeaderName, HOST, HeaderMap, REFERER, USER_AGENT};
use http::{Request, Response, StatusCode, Version};
use leeward_core::units::{Nanos, Time};
use leeward_runtime::clock;
use leeward_tower::headers::{DECISION, REASON};
use std::net::IpAddr;
use std::time::SystemTime;

/// Most bytes of a request's target, of other texts that clients choose, and of identifiers.
const TARGET_MAX: usize = 2_048;
const TEXT_MAX: usize = 512;
const ID_MAX: usize = 128;

/// Facts about a request, as bytes that its client may have chosen.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Time of its arrival.
    pub(super) time: SystemTime,
    pub(super) client: Option<IpAddr>,
    pub(super) method: Box<[u8]>,
    pub(super) target: Box<[u8]>,
    pub(super) version: Version,
    pub(super) host: Option<Box<[u8]>>,
    pub(super) user_agent: Option<Box<[u8]>>,
    pub(super) referer: Option<Box<[u8]>>,
    pub(super) request_id: Option<Box<[u8]>>,
    pub(super) trace_id: Option<Box<[u8]>>,
    /// Status; `None`: the client had gone before there was an answer.
    pub(super) status: Option<u16>,
    /// Bytes of the answer's body that were passed on.
    pub(super) bytes: u64,
    /// Whether these are all.
    pub(super) is_complete: bool,
    pub(super) duration: Nanos,
    pub(super) class: Option<u8>,
    pub(super) tenant: Option<u32>,
    /// Time in the queue.
    pub(super) queued: Option<Nanos>,
    /// Time from sending the request to the end of the answer.
    pub(super) at_backend: Option<Nanos>,
    pub(super) backend: Option<String>,
    /// Why the proxy answered by itself, or why the answer is not complete.
    pub(super) reason: Option<Box<[u8]>>,
    pub(super) decision: Option<Box<[u8]>>,
}

/// An entry whose request is in progress. Dropping it sends it to the log.
pub(crate) struct OpenEntry {
    sender: LogSender,
    entry: Option<Entry>,
    arrived: Time,
    dispatched: Option<Time>,
    /// Whether the answer is the backend's.
    has_answered: bool,
}

/// Logs a request whose head hyper could not parse, and has answered by this status.
pub(crate) fn log_unparsed(sender: &LogSender, client: Option<IpAddr>, status: StatusCode) {
    let reason = Some(b"bad-request"[..].into());
    sender.send(Entry { status: Some(status.as_u16()), is_complete: true, reason, ..Entry::new(client) });
}

impl Entry {
    /// A request of which nothing is known but its client.
    fn new(client: Option<IpAddr>) -> Self {
        Entry {
            time: SystemTime::now(),
            client,
            method: b"-"[..].into(),
            target: b"-"[..].into(),
            // None of those that are served.
            version: Version::HTTP_09,
            host: None,
            user_agent: None,
            referer: None,
            request_id: None,
            trace_id: None,
            status: None,
            bytes: 0,
            is_complete: false,
            duration: Nanos::ZERO,
            class: None,
            tenant: None,
            queued: None,
            at_backend: None,
            backend: None,
            reason: None,
            decision: None,
        }
    }
}

impl OpenEntry {
    /// Begins an entry.
    pub(crate) fn begin<B>(sender: &LogSender, client: Option<IpAddr>, request: &Request<B>) -> Self {
        let headers = request.headers();
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let entry = Entry {
            method: cut(request.method().as_str().as_bytes(), ID_MAX),
            target: cut(target.as_bytes(), TARGET_MAX),
            version: request.version(),
            host: header(headers, HOST, TEXT_MAX)
                .or_else(|| request.uri().authority().map(|host| cut(host.as_str().as_bytes(), TEXT_MAX))),
            user_agent: header(headers, USER_AGENT, TEXT_MAX),
            referer: header(headers, REFERER, TEXT_MAX),
            request_id: header(headers, "x-request-id", ID_MAX),
            trace_id: headers.get("traceparent").and_then(|value| trace_id(value.as_bytes())),
            ..Entry::new(client)
        };
        let (sender, arrived) = (sender.clone(), clock::process());
        OpenEntry { sender, entry: Some(entry), arrived, dispatched: None, has_answered: false }
    }

    /// Records how the request is treated.
    pub(crate) fn record_class(&mut self, class: u8, tenant: u32) {
        if let Some(entry) = &mut self.entry {
            (entry.class, entry.tenant) = (Some(class), Some(tenant));
        }
    }

    /// Records that the request leaves the queue: it is sent or rejected.
    pub(crate) fn record_dispatch(&mut self, is_sent: bool) {
        let now = clock::process();
        if let Some(entry) = &mut self.entry {
            entry.queued = Some(now.since(self.arrived));
        }
        self.dispatched = is_sent.then_some(now);
    }

    /// Records the backend that the request was sent to, and whether it has answered.
    pub(crate) fn record_backend(&mut self, backend: String, has_answered: bool) {
        if let Some(entry) = &mut self.entry {
            entry.backend = Some(backend);
        }
        self.has_answered = has_answered;
    }

    /// Records that the proxy answers in the backend's place.
    pub(crate) fn record_own_answer(&mut self) {
        self.has_answered = false;
    }

    /// Records the head of the answer.
    pub(crate) fn record_answer<B>(&mut self, response: &Response<B>) {
        let Some(entry) = &mut self.entry else { return };
        entry.status = Some(response.status().as_u16());
        // A backend may have such headers, too: it may be a proxy.
        if !self.has_answered {
            entry.reason = header(response.headers(), REASON, ID_MAX);
            entry.decision = header(response.headers(), DECISION, ID_MAX);
        }
    }

    /// Records a piece of the answer's body.
    pub(crate) fn record_bytes(&mut self, bytes: usize) {
        if let Some(entry) = &mut self.entry {
            entry.bytes += bytes as u64;
        }
    }

    /// Records why the answer ends before its last byte.
    pub(crate) fn record_cut(&mut self, reason: &str) {
        if let Some(entry) = &mut self.entry {
            entry.reason = Some(reason.as_bytes().into());
        }
    }

    /// Records that the answer is complete.
    pub(crate) fn record_end(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.is_complete = true;
        }
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            let now = clock::process();
            entry.duration = now.since(self.arrived);
            entry.at_backend = self.dispatched.map(|dispatched| now.since(dispatched));
            if !entry.is_complete && entry.reason.is_none() {
                let reason: &[u8] = if self.sender.has_ended() { b"stopped" } else { b"client-left" };
                entry.reason = Some(reason.into());
            }
            self.sender.send(entry);
        }
    }
}

fn cut(bytes: &[u8], most: usize) -> Box<[u8]> {
    bytes[..bytes.len().min(most)].into()
}

fn header(headers: &HeaderMap, name: impl AsHeaderName, most: usize) -> Option<Box<[u8]>> {
    headers.get(name).map(|value| cut(value.as_bytes(), most))
}

/// The trace's number in `traceparent` (W3C Trace Context): version, trace, parent, flags.
fn trace_id(traceparent: &[u8]) -> Option<Box<[u8]>> {
    let id = traceparent.split(|byte| *byte == b'-').nth(1)?;
    (id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit)).then(|| id.into())
}
