//! Body of an answer on its way from the backend to the client. It holds the request's place and
//! connection until the backend has sent the last byte. Does not contain its head.

use super::grpc_message::FirstMessage;
use crate::access_log::entry::OpenEntry;
use crate::activity::{Busy, Piece};
use crate::admission::{HangWatch, Place, Stream};
use crate::backend::pool::{Pool, Sender};
use crate::settings::PlaceEnd;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use leeward_gate::Outcome;
use leeward_tower::headers;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of an answer beyond which the client's reading speed dominates its time.
const LARGE: u64 = 64 << 10;

/// Most bytes of a piece on a stream of HTTP/2: a frame.
const PIECE_MAX: usize = 16 << 10;

/// The body of an answer, and the mark that its connection is busy.
pub(crate) struct ResponseBody {
    content: Content,
    busy: Option<Busy>,
    entry: Option<Box<OpenEntry>>,
}

/// Bytes of the proxy's own, or a backend's.
enum Content {
    Own(Option<Bytes>),
    Backend(Box<BackendBody>),
}

impl ResponseBody {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        ResponseBody { content: Content::Own(None), busy: None, entry: None }
    }

    /// Bytes of the proxy's own.
    pub(crate) fn own(text: Bytes) -> Self {
        ResponseBody { content: Content::Own(Some(text).filter(|text| !text.is_empty())), busy: None, entry: None }
    }

    /// A backend's body.
    pub(crate) fn backend(body: BackendBody) -> Self {
        ResponseBody { content: Content::Backend(Box::new(body)), busy: None, entry: None }
    }

    /// Keeps the mark until hyper has the last byte.
    pub(crate) fn with_mark(self, busy: Busy) -> Self {
        ResponseBody { busy: Some(busy), ..self }
    }

    /// Completes the entry of the access log with the last byte.
    pub(crate) fn with_entry(self, mut entry: Option<Box<OpenEntry>>) -> Self {
        if let Some(entry) = entry.as_mut().filter(|_| self.is_end_stream()) {
            entry.record_end();
        }
        ResponseBody { entry, ..self }
    }

    /// Records a piece for the access log.
    fn record(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>>) {
        let is_end = match polled {
            Poll::Ready(Some(Ok(_))) => self.is_end_stream(),
            Poll::Ready(None) => true,
            _ => false,
        };
        let Some(entry) = &mut self.entry else { return };
        match polled {
            Poll::Ready(Some(Ok(frame))) => entry.record_bytes(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(error))) => entry.record_cut(error.reason()),
            _ => {}
        }
        if is_end {
            entry.record_end();
        }
    }
}

/// Error: the answer ends before its last byte. The client sees its connection cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseBodyError {
    /// The backend has sent nothing for too long.
    #[error("the backend sent nothing for too long")]
    IdleTimeout,
    /// The time for the whole answer is up.
    #[error("the answer took too long")]
    TotalTimeout,
    /// The backend has ended its answer before the last byte, as if it were whole.
    #[error("the backend ended its answer in the middle")]
    Cut,
    /// The backend has closed its connection, or its body is malformed.
    #[error(transparent)]
    Backend(#[from] hyper::Error),
}

impl ResponseBodyError {
    /// The reason in the access log.
    fn reason(&self) -> &'static str {
        match self {
            ResponseBodyError::IdleTimeout => "idle-timeout",
            ResponseBodyError::TotalTimeout => "total-timeout",
            ResponseBodyError::Cut | ResponseBodyError::Backend(_) => "backend-failed",
        }
    }
}

/// Connection that returns to its pool with the last byte.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) sender: Sender,
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
    stream: Arc<Stream>,
    place: Option<Place>,
    lease: Option<Lease>,
    until: PlaceEnd,
    times: BodyTimes,
    outcome: Outcome,
    bytes: u64,
    /// The first message of a gRPC response that holds its place until the last byte.
    message: Option<FirstMessage>,
    /// The part of a piece that its client has not asked for yet.
    rest: Bytes,
    is_watched: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// The present wait for the backend.
    wait: Option<Wait>,
}

/// A wait for the backend's next piece.
struct Wait {
    since: Instant,
    /// Time at which it ends, unless the client sends something meanwhile.
    limit: Option<Instant>,
    /// Pieces that the client had sent at its beginning.
    pieces: u32,
    hang: HangWatch,
}

impl Lease {
    pub(crate) fn give_back(self) {
        self.pool.put(self.sender);
    }
}

impl BackendBody {
    /// The body of an answer with this outcome; `place`: none for requests that need no place.
    pub(crate) fn new(
        (incoming, stream): (Incoming, Arc<Stream>),
        place: Option<Place>,
        lease: Lease,
        until: PlaceEnd,
        times: BodyTimes,
        outcome: Outcome,
    ) -> Self {
        BackendBody {
            incoming,
            stream,
            place,
            lease: Some(lease),
            until,
            times,
            outcome,
            bytes: 0,
            message: None,
            rest: Bytes::new(),
            is_watched: false,
            timer: None,
            wait: None,
        }
    }

    /// Frees the place of a gRPC stream with its first message.
    pub(super) fn with_message(self, message: Option<FirstMessage>) -> Self {
        BackendBody { message, ..self }
    }

    fn is_http2(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.sender.is_http2())
    }

    fn finish(&mut self) {
        self.stream.record_ended();
        if let Some(place) = self.place.take() {
            let now = place.admission().now();
            // Its first message was no failure.
            if place.is_released() && self.outcome == Outcome::Failed {
                place.record_failure();
            }
            place.finish(now, self.outcome);
        }
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    fn fail(&mut self, error: ResponseBodyError) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        self.stream.record_ended();
        if let Some(place) = self.place.take() {
            let now = place.admission().now();
            place.finish(now, Outcome::Failed);
        }
        // Without its sender, the connection to the backend closes.
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Frees the place of a gRPC stream: being open is no work for the backend. Its head does not
    /// say that it is one, but the only message of another call comes with the end of the response.
    fn release_stream(&mut self) {
        if !self.message.as_ref().is_some_and(FirstMessage::is_complete) {
            return;
        }
        self.message = None;
        if let Some(place) = &mut self.place {
            let now = place.admission().now();
            place.record_answer(now, self.outcome);
            place.release(now);
        }
    }

    /// Takes note of a piece.
    fn note(&mut self, piece: Option<&Bytes>) {
        let bytes = piece.map_or(0, |piece| piece.len() as u64);
        if let (Some(message), Some(piece)) = (&mut self.message, piece) {
            message.note(piece);
        }
        let is_first = self.bytes == 0 && bytes > 0;
        self.bytes += bytes;
        (self.timer, self.wait) = (None, None);
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
                let trailers = frame.trailers_ref();
                if trailers.is_some_and(is_failed_call) {
                    self.outcome = Outcome::Failed;
                }
                // hyper does not poll again after the trailers.
                if trailers.is_some() || self.incoming.is_end_stream() {
                    self.finish()
                } else {
                    self.note(frame.data_ref())
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.fail(error.into()),
            // hyper takes RST_STREAM with NO_ERROR for the end.
            Poll::Ready(None) if self.is_http2() && !self.incoming.is_end_stream() => self.fail(ResponseBodyError::Cut),
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Pending => {
                self.release_stream();
                self.wait(context)
            }
        }
    }

    /// The next piece, of so many bytes at most.
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        most: usize,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if self.rest.is_empty() {
            match self.poll(context) {
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(|piece| piece.len() > most) => {
                    self.rest = frame.into_data().unwrap_or_default();
                }
                polled => return polled,
            }
        }
        let piece = self.rest.split_to(most.min(self.rest.len()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.incoming.size_hint(), self.rest.len() as u64);
        hint.exact().map_or_else(SizeHint::default, |left| SizeHint::with_exact(left + rest))
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let (Some(place), true) = (&self.place, self.is_watched) {
            place.stream().wait_for_backend(place.admission().now());
        }
        let (place, stream, times) = (self.place.as_ref(), &self.stream, self.times);
        let limit_from = |since| [times.idle.map(|idle| since + idle), times.end].into_iter().flatten().min();
        let wait = self.wait.get_or_insert_with(|| {
            let (since, pieces) = (Instant::now(), stream.pieces());
            let limit = limit_from(since);
            let hang = place.map(|place| HangWatch::new(place.admission(), &place.stream()));
            Wait { since, limit, pieces, hang: hang.unwrap_or_default() }
        });
        loop {
            let look = wait.hang.next().map(|after| wait.since + after);
            let Some(until) = [wait.limit, look].into_iter().flatten().min() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
            if wait.limit.is_some_and(|limit| Instant::now() >= limit) {
                let is_over = times.end.is_some_and(|end| Instant::now() >= end);
                let pieces = stream.pieces();
                if !is_over && std::mem::replace(&mut wait.pieces, pieces) != pieces {
                    wait.limit = limit_from(Instant::now());
                    continue;
                }
                return self.fail(match is_over {
                    true => ResponseBodyError::TotalTimeout,
                    false => ResponseBodyError::IdleTimeout,
                });
            }
            if let Some(place) = place {
                wait.hang.look(place.admission(), &place.stream(), wait.since.elapsed());
            }
        }
    }
}

/// Whether a gRPC call failed, by its head or trailers: by the server's fault, or because that has
/// no resources for it.
pub(super) fn is_failed_call(of: &HeaderMap) -> bool {
    leeward_tower::is_failed_call(of) || of.get(headers::GRPC_STATUS).is_some_and(|status| status == "8")
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, ResponseBodyError>>> {
        let this = self.get_mut();
        // A client may take long for a piece: it must be small, or that looks like no progress.
        let most = if this.busy.as_ref().is_some_and(Busy::is_stream) { PIECE_MAX } else { usize::MAX };
        let polled = match &mut this.content {
            Content::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Content::Backend(body) => body.poll_piece(context, most),
        };
        if let Some(busy) = &this.busy {
            busy.record_piece(matches!(polled, Poll::Ready(Some(_))));
        }
        if this.entry.is_some() {
            this.record(&polled);
        }
        let busy = this.busy.as_ref();
        polled.map_ok(|frame| {
            frame.map_data(|bytes| match busy {
                Some(busy) => busy.piece(bytes),
                None => bytes.into(),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(text) => text.is_none(),
            Content::Backend(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Backend(body) => body.size_hint(),
        }
    }
}
