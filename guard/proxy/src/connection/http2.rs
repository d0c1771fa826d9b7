//! A client's connection in HTTP/2: its limits, and when it ends. Does not contain requests or
//! frames (hyper).
//!
//! It can't sleep without buffers as one of HTTP/1 does: both sides keep the tables of their
//! compressed heads. So it is bounded in everything that a client could make it keep.

use super::streams::{StreamExecutor, Streams};
use super::{HEAD_MAX, MANY};
use crate::activity::{Activity, Busy, StreamProgress};
use crate::connections::{Connections, Phase};
use crate::http::head::Peer;
use crate::transport::client_stream::ClientStream;
use crate::worker::Worker;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// First bytes of a connection whose client knows that HTTP/2 is served (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Requests at a time; RFC 9113 §6.5.2 advises no fewer.
const STREAMS_MAX: u32 = 100;
/// Bytes of a stream's request that nobody has read yet; the second number is for connections that
/// begin while there are [`MANY`]. A connection has room for those of all its streams, so that
/// those which wait hold no other one up: 6.25 MiB, or 1.56. In all they are bounded by the queue:
/// a request that is refused gives its bytes back, and 10,000 that wait have 625 MiB at most.
const STREAM_WINDOW: u32 = 64 << 10;
const STREAM_WINDOW_OF_MANY: u32 = 16 << 10;
/// Bytes of an answer that wait for the client, besides one piece.
const SEND_BUFFER: usize = 64 << 10;
/// Time without requests, all responses written, after which a connection counts as idle: it ends
/// if others need room.
const IDLE_AFTER: Duration = Duration::from_millis(250);
/// Longest time from the notice that a connection ends to its end, while no request is in progress
/// and all responses are written.
const GRACE: Duration = Duration::from_secs(1);

/// What the streams of a connection share.
struct Shared {
    worker: Arc<Worker>,
    peer: Peer,
    activity: Arc<Activity>,
    streams: Arc<Streams>,
}

/// Serves a connection until it ends. Errors are those of the client: hyper answers them.
pub(super) async fn serve(
    stream: ClientStream,
    (worker, peer): (&Arc<Worker>, &Peer),
    phase: &mut watch::Receiver<Phase>,
    connections: &Connections,
) {
    let (activity, streams) = (Arc::new(Activity::default()), Arc::new(Streams::default()));
    let timeouts = worker.configuration().settings.timeouts;
    let stream_window = if connections.total() > MANY { STREAM_WINDOW_OF_MANY } else { STREAM_WINDOW };
    let mut builder = http2::Builder::new(StreamExecutor::new(&streams, timeouts.client_idle));
    builder.timer(TokioTimer::new()).max_pending_accept_reset_streams(STREAMS_MAX as usize);
    builder.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_MAX).max_send_buf_size(SEND_BUFFER);
    builder.initial_stream_window_size(stream_window).initial_connection_window_size(stream_window * STREAMS_MAX);
    builder.keep_alive_interval(timeouts.client_idle).keep_alive_timeout(timeouts.client_idle);
    builder.enable_connect_protocol();
    let shared = Arc::new(Shared {
        worker: Arc::clone(worker),
        peer: peer.clone(),
        activity: Arc::clone(&activity),
        streams: Arc::clone(&streams),
    });
    let service = service_fn(move |request| {
        let progress = Arc::new(StreamProgress::default());
        shared.streams.begin(&progress);
        let busy = Busy::new(&shared.activity, Some(progress));
        let shared = Arc::clone(&shared);
        Box::pin(async move { shared.worker.handle_stream(&shared.peer, busy, request).await })
    });
    let flags = stream.flags();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let (mut is_idle, mut is_ending, mut awaited) = (false, false, Some(Phase::HandedOver));
    let mut last_request = Instant::now();
    loop {
        let started = activity.started();
        if !activity.is_idle() {
            last_request = Instant::now();
        }
        let wait = match (is_ending, is_idle) {
            // A request may be on its way until the client has answered; see `Phase::HandedOver`.
            (true, _) if awaited == Some(Phase::Stopping) => timeouts.client,
            (true, _) => GRACE,
            (false, true) => timeouts.client,
            (false, false) => IDLE_AFTER,
        };
        let is_still_idle = || {
            let is_written = activity.is_written() && flags.is_flushed();
            // A client must not hold its connection by never reading the end of a response.
            let has_had_time = last_request.elapsed() >= timeouts.client_idle;
            activity.is_idle() && activity.started() == started && (is_written || has_had_time)
        };
        let must_go = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if ended.is_err_and(|error| is_violation(&error)) {
                    worker.admission.record_bad_request();
                }
                return;
            }
            () = awaited.unwrap_or_default().reached(phase), if awaited.is_some() => {
                awaited = (awaited == Some(Phase::HandedOver)).then_some(Phase::Stopping);
                true
            }
            () = streams.are_too_many_cancelled(), if !is_ending => true,
            () = connections.must_end(), if is_idle && !is_ending => {
                is_idle = is_still_idle();
                if !is_idle {
                    // Another one may be idle.
                    connections.make_room();
                }
                is_idle
            }
            () = sleep(wait) => match (is_still_idle(), is_ending) {
                // The client has not said that it knows of the end.
                (true, true) => return,
                (still, false) => std::mem::replace(&mut is_idle, still) && still,
                (false, true) => false,
            },
        };
        if must_go && !is_ending {
            is_ending = true;
            // GOAWAY, after which requests in progress are completed, and no more accepted.
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Whether the client has broken the rules of HTTP/2.
fn is_violation(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(h2::Error::is_library)
}
