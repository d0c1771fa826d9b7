//! A connection of HTTP/2, with as many requests in flight as the server permits. One task drives
//! the connection and takes requests; each request has a task of its own.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::SemaphorePermit;
use tokio::task::spawn_local;

use crate::exchange::{Exchanged, exchange};
use crate::lifecycle::{ConnectionEnd, Lifecycle, error_chain};
use crate::request::RequestBody;
use crate::response::{Label, Outcome};
use crate::shared::Shared;
use crate::state::{Job, Place};

/// Limit of streams per connection, if the server has a higher one or none.
const STREAMS_MAX: usize = 1_000;
/// Bytes of responses that the server may send ahead, per stream and per connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Interval of looks for the server's settings.
const SETTINGS_POLL: Duration = Duration::from_millis(1);

/// Runs the library's tasks on the thread of the run.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        spawn_local(async move {
            task.await;
        });
    }
}

/// A connection that the library drives.
type ClientConnection<S> = http2::Connection<TokioIo<S>, RequestBody, LocalExecutor>;

/// State that a connection shares with its streams.
#[derive(Default)]
struct Streams {
    in_flight: Cell<usize>,
    answered: Cell<u64>,
    /// Whether the server no longer takes requests on this connection (GOAWAY).
    is_closing: Cell<bool>,
    /// Wakes the connection when a stream ends.
    waker: RefCell<Option<Waker>>,
}

/// Serves requests until the connection ends.
pub(crate) async fn serve<S>(
    shared: &Rc<Shared>,
    place: Place,
    stream: S,
    permit: Option<SemaphorePermit<'_>>,
    lifecycle: &mut Lifecycle<'_>,
) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lost = |reason: String| ConnectionEnd { answered: 0, loss: Some(reason) };
    let mut builder = http2::Builder::new(LocalExecutor);
    // No stream before the server's settings have come: they have its limit, and prove HTTP/2.
    builder.initial_max_send_streams(0);
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = match builder.handshake(TokioIo::new(stream)).await {
        Ok(opened) => opened,
        Err(error) => return lost(error_chain(&error)),
    };
    let mut connection = pin!(connection);
    if let Err(reason) = wait_for_settings(shared, connection.as_mut()).await {
        return lost(reason);
    }
    drop(permit);
    lifecycle.set_open();
    let streams = Rc::new(Streams::default());
    let result = poll_fn(|cx| {
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        if streams.is_closing.get() || sender.is_closed() {
            shared.state.borrow_mut().leave(place);
            if streams.in_flight.get() == 0 {
                return Poll::Ready(Ok(()));
            }
        } else {
            // A server that permits no stream for a while lets the library wait: a change of its
            // settings does not wake this task.
            let permitted = connection.current_max_send_streams().max(1);
            let permitted = permitted.min(shared.outstanding.unwrap_or(STREAMS_MAX));
            while streams.in_flight.get() < permitted {
                let next = shared.state.borrow_mut().poll_job(shared.now(), place, cx);
                let Poll::Ready(job) = next else { break };
                streams.in_flight.set(streams.in_flight.get() + 1);
                spawn_local(serve_stream(Rc::clone(shared), place.endpoint, job, sender.clone(), Rc::clone(&streams)));
            }
        }
        let mut waker = streams.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    })
    .await;
    let loss = match result {
        Err(error) => Some(error_chain(&error)),
        // The streams report their own failures when they notice.
        Ok(()) if streams.in_flight.get() > 0 => Some("closed".to_string()),
        Ok(()) => None,
    };
    ConnectionEnd { answered: streams.answered.get(), loss }
}

/// Waits until the server's settings have come.
async fn wait_for_settings<S>(shared: &Shared, mut connection: Pin<&mut ClientConnection<S>>) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut rest = Duration::from_nanos(shared.config.connect_timeout.0);
    while connection.current_max_send_streams() == 0 {
        // A task of the library reads the settings, and wakes only itself.
        match tokio::time::timeout(SETTINGS_POLL, connection.as_mut()).await {
            Ok(Ok(())) => return Err("the server closed the connection before HTTP/2 began".into()),
            Ok(Err(error)) => return Err(format!("no HTTP/2: {}", error_chain(&error))),
            Err(_) => {}
        }
        rest = rest.saturating_sub(SETTINGS_POLL);
        if rest.is_zero() {
            return Err("the server sent no HTTP/2 settings in time".into());
        }
    }
    Ok(())
}

/// Sends one request, and counts its end.
async fn serve_stream(
    shared: Rc<Shared>,
    endpoint: usize,
    job: Job,
    mut sender: SendRequest<RequestBody>,
    streams: Rc<Streams>,
) {
    let sent = shared.now();
    let (slot, rest) = {
        let mut state = shared.state.borrow_mut();
        let slot = state.claim_slot();
        state.begin(slot, job);
        (slot, state.rest_of_budget(sent, &job))
    };
    let response = sender.try_send_request(shared.requests.build(job.kind, rest));
    let Exchanged { outcome, content_bytes } = {
        let mut exchange = pin!(exchange(response, shared.config.is_grpc));
        poll_fn(|cx| {
            if let Poll::Ready(done) = exchange.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if shared.state.borrow_mut().poll_aborted(slot, cx) {
                return Poll::Ready(Exchanged::without_response(Outcome::TimedOut));
            }
            Poll::Pending
        })
        .await
    };
    {
        let mut state = shared.state.borrow_mut();
        state.end(shared.now(), Place { endpoint, slot }, sent, &outcome, content_bytes);
        state.release_slot(slot);
    }
    match outcome {
        Outcome::Unsent => streams.is_closing.set(true),
        Outcome::Failed(Label::Name(_) | Label::Text(_)) => {}
        _ => streams.answered.set(streams.answered.get() + 1),
    }
    streams.in_flight.set(streams.in_flight.get() - 1);
    if let Some(waker) = streams.waker.borrow().as_ref() {
        waker.wake_by_ref();
    }
}
