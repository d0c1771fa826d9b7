//! Connections of HTTP/2 to one backend, each of which serves many requests at a time. Does not
//! contain sockets, streams ([`super::http2_streams`]) or requests.
//!
//! Mostly there is one. A second one is opened while all streams of the first are in use, or the
//! backend leaves a body unread, which takes the window of its connection. A dead peer is found by
//! TCP's probes, not by HTTP/2's PING: servers of gRPC end connections that ping them more often
//! than every few minutes.

use super::http2_streams::{Http2Stream, Http2Streams};
use crate::http::request_body::RequestBody;
use http::{Method, Request};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioTimer;
use leeward_host::sync::{Mutex, lock};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{MutexGuard, watch};
use tokio::time::{sleep, timeout};

/// Requests of a connection at a time, if its backend allows as many.
const STREAMS_MAX: usize = 100;
/// Bytes of an answer that its client has not read yet. A connection has room for those of all its
/// streams, so that a slow client holds no other one up.
const STREAM_WINDOW: u32 = 128 << 10;
const WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX as u32;
/// Bytes of a request that wait for the backend, besides one piece.
const SEND_BUFFER: usize = 64 << 10;
/// Most bytes of an answer's head, decoded, as for HTTP/1.
const HEAD_MAX: u32 = 128 << 10;
/// Mark of a connection whose backend has not stated its settings, which no backend can state.
const STREAMS_UNKNOWN: usize = usize::MAX - 1;
/// Longest that a backend may take to state them.
const SETTINGS_WAIT: Duration = Duration::from_secs(1);

/// The connections of a worker thread to one backend.
pub(super) struct Http2Connections {
    /// Whether the backend has spoken HTTP/2.
    is_spoken: AtomicBool,
    open: Mutex<Vec<Arc<Http2Connection>>>,
    opening: tokio::sync::Mutex<()>,
    failures: AtomicUsize,
}

struct Http2Connection {
    sender: SendRequest<RequestBody>,
    streams: Http2Streams,
    settings: watch::Receiver<PeerSettings>,
    round_trip: Duration,
    /// Time from which it serves no more requests.
    end: Option<Instant>,
}

/// What a backend has stated about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PeerSettings {
    /// Requests at a time; `None`: it has stated nothing.
    streams: Option<usize>,
    has_extended_connect: bool,
}

impl PeerSettings {
    fn are_known(&self) -> bool {
        self.streams.is_some()
    }
}

/// A stream that is reserved on a connection. Dropping it cancels the request.
pub(crate) struct Http2Sender {
    connection: Arc<Http2Connection>,
    sender: SendRequest<RequestBody>,
    stream: Arc<Http2Stream>,
    /// Whether it has a complete answer.
    is_answered: bool,
}

/// Leave to open a connection, which one request has at a time.
pub(super) enum Opening<'a> {
    /// Another one has opened a connection meanwhile.
    Open(Http2Sender),
    /// It must open one.
    Must(MutexGuard<'a, ()>),
    /// Another one has failed to do so meanwhile.
    Failed,
}

impl Http2Connections {
    pub(super) fn new(is_spoken: bool) -> Self {
        Http2Connections {
            is_spoken: AtomicBool::new(is_spoken),
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            failures: AtomicUsize::new(0),
        }
    }

    /// Whether the backend speaks HTTP/2, as far as is known.
    pub(super) fn is_spoken(&self) -> bool {
        self.is_spoken.load(Ordering::Relaxed)
    }

    /// A stream of a connection that has room for it.
    pub(super) fn take(&self) -> Option<Http2Sender> {
        let mut open = lock(&self.open);
        open.retain(|connection| !connection.is_over());
        open.iter().find(|connection| connection.has_room()).map(Http2Connection::reserve)
    }

    /// Waits for leave to open a connection: one is enough for many requests that need one now.
    pub(super) async fn wait_to_open(&self) -> Opening<'_> {
        let failures = self.failures.load(Ordering::Relaxed);
        let guard = self.opening.lock().await;
        match self.take() {
            Some(sender) => Opening::Open(sender),
            None if self.failures.load(Ordering::Relaxed) != failures => Opening::Failed,
            None => Opening::Must(guard),
        }
    }

    /// Adds a connection on which a stream is reserved.
    pub(super) fn add(&self, sender: &Http2Sender) {
        self.is_spoken.store(true, Ordering::Relaxed);
        lock(&self.open).push(Arc::clone(&sender.connection));
    }

    /// Records that a connection could not be opened.
    pub(super) fn record_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes connections without requests for so long.
    pub(super) fn close_old(&self, idle: Duration) {
        lock(&self.open).retain(|connection| {
            let streams = &connection.streams;
            !connection.is_over() && (streams.open() > 0 || streams.used().elapsed() < idle)
        });
    }
}

/// Opens a connection over a transport, and reserves a stream of it; `end`: time from which it
/// serves no more requests.
///
/// # Errors
/// The connection has ended.
pub(super) async fn open(
    io: impl Read + Write + Send + Unpin + 'static,
    round_trip: Duration,
    end: Option<Instant>,
) -> io::Result<Http2Sender> {
    let streams = Http2Streams::new();
    let mut builder = http2::Builder::new(streams.clone());
    builder.timer(TokioTimer::new()).max_header_list_size(HEAD_MAX).max_send_buf_size(SEND_BUFFER);
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(WINDOW);
    builder.initial_max_send_streams(STREAMS_UNKNOWN);
    let (sender, mut connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    let settings = move |connection: &http2::Connection<_, _, _>| PeerSettings {
        streams: Some(connection.current_max_send_streams()).filter(|streams| *streams != STREAMS_UNKNOWN),
        has_extended_connect: connection.is_extended_connect_protocol_enabled(),
    };
    let (stated, mut receiver) = watch::channel(settings(&connection));
    tokio::spawn(async move {
        // hyper does not tell when the settings come, which is soon.
        let mut pause = Duration::from_millis(1);
        let mut timer = Some(Box::pin(sleep(pause)));
        poll_fn(|context| {
            // Its error reaches the requests that it serves.
            let ended = Pin::new(&mut connection).poll(context);
            let now = settings(&connection);
            stated.send_if_modified(|known| std::mem::replace(known, now) != now);
            while timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready()) {
                pause *= 2;
                timer = (!now.are_known() && pause < SETTINGS_WAIT).then(|| Box::pin(sleep(pause)));
            }
            ended.map(drop)
        })
        .await;
    });
    // More requests than it takes would wait in the connection, where nobody sees them.
    let _ = timeout(SETTINGS_WAIT, receiver.wait_for(PeerSettings::are_known)).await;
    let connection = Arc::new(Http2Connection { sender, streams, settings: receiver, round_trip, end });
    Ok(Http2Connection::reserve(&connection))
}

impl Http2Connection {
    fn is_over(&self) -> bool {
        let has_ended = self.end.is_some_and(|end| Instant::now() >= end);
        has_ended || self.sender.is_closed() || self.streams.are_leaving()
    }

    fn has_room(&self) -> bool {
        self.streams.open() < self.settings.borrow().streams.unwrap_or(1).min(STREAMS_MAX)
    }

    fn reserve(self: &Arc<Self>) -> Http2Sender {
        let stream = self.streams.begin();
        Http2Sender { connection: Arc::clone(self), sender: self.sender.clone(), stream, is_answered: false }
    }
}

impl Http2Sender {
    /// The sender of this request.
    pub(super) fn sender_of(&mut self, request: &mut Request<RequestBody>) -> &mut SendRequest<RequestBody> {
        if request.method() == Method::CONNECT {
            self.stream.record_tunnel();
        }
        request.body_mut().go_on(&self.stream);
        &mut self.sender
    }

    /// Ends the stream after a complete answer.
    pub(super) fn finish(mut self) {
        self.is_answered = true;
        self.stream.finish();
    }

    /// Sends no more requests on this connection.
    pub(super) fn retire(&self) {
        self.connection.streams.retire();
    }

    /// Time of a round trip to the backend.
    pub(super) fn round_trip(&self) -> Duration {
        self.connection.round_trip
    }

    /// Whether the backend takes extended CONNECT.
    pub(super) fn has_extended_connect(&self) -> bool {
        self.connection.settings.borrow().has_extended_connect
    }
}

impl Drop for Http2Sender {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stream.cancel();
        }
    }
}

/// What the backend has said about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It did not begin with this one: the request may be sent again (RFC 9113 §8.7).
    Stream,
    /// It begins with none on this connection any more: they may be sent on another one.
    Connection,
}

/// The error of HTTP/2 behind an error.
fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    let source = std::error::Error::source(error);
    std::iter::successors(source, |cause| cause.source()).find_map(|cause| cause.downcast_ref())
}

/// Whether the backend has said that it has not begun with the request, and will not.
pub(crate) fn refusal(error: &hyper::Error) -> Option<Refusal> {
    let error = of_http2(error)?;
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    match (error.is_remote(), error.is_go_away()) {
        (true, true) => Some(Refusal::Connection),
        (true, false) if is_refused => Some(Refusal::Stream),
        _ => None,
    }
}

/// Whether the backend's answer breaks the rules of HTTP, in either version.
pub(crate) fn is_malformed(error: &hyper::Error) -> bool {
    error.is_parse() || of_http2(error).is_some_and(h2::Error::is_library)
}

/// The reason for which the backend has reset the stream, if it has.
pub(crate) fn reset_reason(error: &hyper::Error) -> Option<h2::Reason> {
    of_http2(error).filter(|error| error.is_reset() && error.is_remote())?.reason()
}

/// Whether the failure is that of a stream: its connection goes on.
pub(crate) fn is_of_stream(error: &hyper::Error) -> bool {
    of_http2(error).is_some_and(h2::Error::is_reset)
}
