//! Body of an answer on its way from the backend to the client. It holds the request's place and
//! connection until the backend has sent the last byte. Does not contain its head.

use crate::activity::Busy;
use crate::admission::Place;
use crate::backend::pool::Pool;
use crate::http::request_body::RequestBody;
use crate::settings::PlaceEnd;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use leeward_gate::Outcome;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of an answer after which its time says more about the client than about the backend.
const LARGE: u64 = 64 << 10;

/// The body of an answer, and the mark that its connection is busy.
pub(crate) struct ResponseBody {
    content: Content,
    _busy: Option<Busy>,
}

/// Bytes of the proxy's own, or a backend's.
enum Content {
    Own(Option<Bytes>),
    Backend(Box<BackendBody>),
}

impl ResponseBody {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        ResponseBody { content: Content::Own(None), _busy: None }
    }

    /// Bytes of the proxy's own.
    pub(crate) fn own(text: &'static [u8]) -> Self {
        let text = (!text.is_empty()).then(|| Bytes::from_static(text));
        ResponseBody { content: Content::Own(text), _busy: None }
    }

    /// A backend's body.
    pub(crate) fn backend(body: BackendBody) -> Self {
        ResponseBody { content: Content::Backend(Box::new(body)), _busy: None }
    }

    /// Keeps the mark until the last byte.
    pub(crate) fn with_mark(self, busy: Busy) -> Self {
        ResponseBody { _busy: Some(busy), ..self }
    }
}

/// Error: the answer ends before its last byte. The client sees its connection cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseBodyError {
    /// The backend has sent nothing for too long.
    #[error("the backend sent nothing for too long")]
    Timeout,
    /// The backend has closed its connection, or its body is malformed.
    #[error(transparent)]
    Backend(#[from] hyper::Error),
}

/// Connection that returns to its pool with the last byte.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) backend: usize,
    pub(crate) sender: SendRequest<RequestBody>,
}

/// Times of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyTimes {
    /// Longest time between two pieces.
    pub(crate) idle: Option<Duration>,
    /// Time at which the answer must be complete.
    pub(crate) end: Option<Instant>,
}

/// A backend's body.
pub(crate) struct BackendBody {
    incoming: Incoming,
    place: Option<Place>,
    lease: Option<Lease>,
    until: PlaceEnd,
    times: BodyTimes,
    outcome: Outcome,
    bytes: u64,
    is_watched: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// Time at which the present wait for the backend ends.
    limit: Option<Instant>,
}

impl Lease {
    pub(crate) fn give_back(self) {
        self.pool.put(self.backend, self.sender);
    }
}

impl BackendBody {
    /// The body of an answer with this outcome; `place`: none for requests that need no place.
    pub(crate) fn new(
        incoming: Incoming,
        place: Option<Place>,
        lease: Lease,
        until: PlaceEnd,
        times: BodyTimes,
        outcome: Outcome,
    ) -> Self {
        BackendBody {
            incoming,
            place,
            lease: Some(lease),
            until,
            times,
            outcome,
            bytes: 0,
            is_watched: false,
            timer: None,
            limit: None,
        }
    }

    fn finish(&mut self) {
        if let Some(place) = self.place.take() {
            let now = place.admission().now();
            place.finish(now, self.outcome);
        }
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    fn fail(&mut self, error: ResponseBodyError) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let Some(place) = self.place.take() {
            let now = place.admission().now();
            place.finish(now, Outcome::Failed);
        }
        // Without its sender, the connection to the backend closes.
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Takes note of a piece.
    fn note(&mut self, bytes: u64) {
        let is_first = self.bytes == 0 && bytes > 0;
        self.bytes += bytes;
        (self.timer, self.limit) = (None, None);
        let Some(place) = &mut self.place else { return };
        let now = place.admission().now();
        if self.until == PlaceEnd::FirstByte && is_first {
            place.record_answer(now, self.outcome);
            place.release(now);
        } else if self.bytes > LARGE {
            place.record_answer(now, self.outcome);
        }
        if !std::mem::replace(&mut self.is_watched, true) {
            place.watch();
        }
        place.stream().wait_for_client(now);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.incoming.is_end_stream() {
                    self.finish()
                } else {
                    self.note(bytes)
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.fail(error.into()),
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Pending => self.wait(context),
        }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let (Some(place), true) = (&self.place, self.is_watched) {
            place.stream().wait_for_backend(place.admission().now());
        }
        if self.limit.is_none() {
            let idle = self.times.idle.map(|idle| Instant::now() + idle);
            self.limit = [idle, self.times.end].into_iter().flatten().min();
        }
        let Some(limit) = self.limit else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(limit)));
        if timer.as_mut().poll(context).is_ready() { self.fail(ResponseBodyError::Timeout) } else { Poll::Pending }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        match &mut self.get_mut().content {
            Content::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Content::Backend(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(text) => text.is_none(),
            Content::Backend(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Backend(body) => body.incoming.size_hint(),
        }
    }
}
