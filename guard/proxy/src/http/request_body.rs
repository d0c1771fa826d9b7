//! Body of a request on its way from the client to the backend. Does not contain its head, or what
//! is kept of it ([`super::kept_body`]).

use super::kept_body::{KeptBody, KeptReader};
use crate::admission::{Admission, ClientFailure, Stream};
use crate::backend::http2_streams::Http2Stream;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Longest wait of a client for leave to send its body, after which it is told that there is none.
/// Most clients send it unasked after one to three seconds.
const EXPECTATION_WAIT: Duration = Duration::from_secs(5);

/// A body without bytes, or a client's.
pub(crate) struct RequestBody {
    source: Source,
    /// The stream of HTTP/2 that it goes on with.
    stream: Option<Arc<Http2Stream>>,
}

enum Source {
    Empty,
    Client(ClientBody),
    /// The same, and it may be sent again.
    Kept(KeptReader<ClientBody>),
}

/// A client's body.
pub(crate) struct ClientBody {
    incoming: Incoming,
    admission: Admission,
    stream: Arc<Stream>,
    is_http2: bool,
    /// Longest time between two pieces.
    idle: Duration,
    /// Whether it waits for an interim answer, of which HTTP/2 has none here.
    expects: bool,
    is_waiting: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Error: the client has sent nothing for too long, or has gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The client has sent nothing for too long.
    #[error("the client sent nothing for too long")]
    Idle,
    /// The client waits for leave to send the body.
    #[error("the client waits for an interim answer")]
    Unmet,
    /// The client has ended its request before the last byte, as if it were whole.
    #[error("the client ended its request in the middle")]
    Cut,
    /// The client has gone, or its body is malformed.
    #[error(transparent)]
    Client(#[from] hyper::Error),
    /// The body is sent on another connection.
    #[error("the request was sent again")]
    Superseded,
}

impl RequestBody {
    pub(crate) fn empty() -> Self {
        Source::Empty.into()
    }

    /// A client's body of the request that `stream` belongs to.
    pub(crate) fn new(
        (incoming, is_http2, expects): (Incoming, bool, bool),
        admission: &Admission,
        stream: Arc<Stream>,
        idle: Duration,
    ) -> Self {
        stream.record_upload();
        let (admission, expects) = (admission.clone(), is_http2 && expects);
        let body = ClientBody { incoming, admission, stream, is_http2, idle, expects, is_waiting: false, timer: None };
        Source::Client(body).into()
    }

    /// Keeps what is read of the body from now on, so that it can be sent again.
    pub(super) fn keep(&mut self) -> Option<KeptBody<ClientBody>> {
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Empty => None,
            Source::Client(body) => {
                let kept = KeptBody::new(body);
                self.source = Source::Kept(kept.reader());
                Some(kept)
            }
            Source::Kept(reader) => {
                let kept = reader.body();
                self.source = Source::Kept(reader);
                Some(kept)
            }
        }
    }

    /// The kept body from its beginning.
    pub(super) fn again(kept: &KeptBody<ClientBody>) -> Self {
        Source::Kept(kept.reader()).into()
    }

    /// Goes to a backend on this stream, which is open for as long.
    pub(crate) fn go_on(&mut self, stream: &Arc<Http2Stream>) {
        self.stream = Some(Arc::clone(stream));
    }
}

impl From<Source> for RequestBody {
    fn from(source: Source) -> Self {
        RequestBody { source, stream: None }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.record_piece(false);
        }
    }
}

impl ClientBody {
    fn fail(&self, error: RequestBodyError) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let failure = match error {
            RequestBodyError::Idle => ClientFailure::Idle,
            RequestBodyError::Unmet => ClientFailure::Unmet,
            _ => ClientFailure::Broken,
        };
        self.stream.record_client_failure(failure);
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                (this.timer, this.is_waiting, this.expects) = (None, false, false);
                let now = this.admission.now();
                if this.incoming.is_end_stream() || frame.is_trailers() {
                    this.stream.record_sent(now)
                } else {
                    this.stream.record_piece(now)
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => this.fail(error.into()),
            // hyper takes RST_STREAM with NO_ERROR for the end.
            Poll::Ready(None) if this.is_http2 && !this.incoming.is_end_stream() => this.fail(RequestBodyError::Cut),
            Poll::Ready(None) => {
                this.stream.record_sent(this.admission.now());
                Poll::Ready(None)
            }
            Poll::Pending => {
                if !std::mem::replace(&mut this.is_waiting, true) {
                    this.stream.wait_for_client(this.admission.now());
                }
                let expects = this.expects;
                let idle = if expects { this.idle.min(EXPECTATION_WAIT) } else { this.idle };
                loop {
                    let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                    ready!(timer.as_mut().poll(context));
                    this.timer = None;
                    // While the answer goes on, its own time-out counts.
                    if !this.stream.is_answering() {
                        break;
                    }
                }
                this.fail(if expects { RequestBodyError::Unmet } else { RequestBodyError::Idle })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = self.get_mut();
        let polled = match &mut this.source {
            Source::Empty => Poll::Ready(None),
            Source::Client(body) => Pin::new(body).poll_frame(context),
            Source::Kept(reader) => {
                reader.poll_frame(context).unwrap_or_else(|| Poll::Ready(Some(Err(RequestBodyError::Superseded))))
            }
        };
        if let Some(stream) = &this.stream {
            stream.record_piece(matches!(polled, Poll::Ready(Some(Ok(_)))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let is_end = match &self.source {
            Source::Empty => true,
            Source::Client(body) => body.is_end_stream(),
            Source::Kept(reader) => reader.is_end_stream(),
        };
        if let Some(stream) = &self.stream {
            stream.note_look(!is_end);
        }
        is_end
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Client(body) => body.size_hint(),
            Source::Kept(reader) => reader.size_hint(),
        }
    }
}
