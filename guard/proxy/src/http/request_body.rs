//! Body of a request on its way from the client to the backend. Does not contain its head, or what
//! is kept of it ([`super::kept_body`]).

use super::kept_body::{KeptBody, KeptReader};
use crate::admission::{Admission, ClientFailure, Stream};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// A body without bytes, or a client's.
pub(crate) struct RequestBody(Source);

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
    timer: Option<Pin<Box<Sleep>>>,
}

/// Error: the client has sent nothing for too long, or has gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The client has sent nothing for too long.
    #[error("the client sent nothing for too long")]
    Idle,
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
        RequestBody(Source::Empty)
    }

    /// A client's body of the request that `stream` belongs to.
    pub(crate) fn new(
        (incoming, is_http2): (Incoming, bool),
        admission: &Admission,
        stream: Arc<Stream>,
        idle: Duration,
    ) -> Self {
        stream.record_upload();
        RequestBody(Source::Client(ClientBody {
            incoming,
            admission: admission.clone(),
            stream,
            is_http2,
            idle,
            timer: None,
        }))
    }

    /// Keeps what is read of the body from now on, so that it can be sent again.
    pub(super) fn keep(&mut self) -> Option<KeptBody<ClientBody>> {
        match std::mem::replace(&mut self.0, Source::Empty) {
            Source::Empty => None,
            Source::Client(body) => {
                let kept = KeptBody::new(body);
                self.0 = Source::Kept(kept.reader());
                Some(kept)
            }
            Source::Kept(reader) => {
                let kept = reader.body();
                self.0 = Source::Kept(reader);
                Some(kept)
            }
        }
    }

    /// The kept body from its beginning.
    pub(super) fn again(kept: &KeptBody<ClientBody>) -> Self {
        RequestBody(Source::Kept(kept.reader()))
    }
}

impl ClientBody {
    fn fail(&self, error: RequestBodyError) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let failure = match error {
            RequestBodyError::Idle => ClientFailure::Idle,
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
                this.timer = None;
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
                if this.timer.is_none() {
                    this.stream.wait_for_client(this.admission.now());
                }
                let idle = this.idle;
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                if timer.as_mut().poll(context).is_ready() {
                    return this.fail(RequestBodyError::Idle);
                }
                Poll::Pending
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
        match &mut self.get_mut().0 {
            Source::Empty => Poll::Ready(None),
            Source::Client(body) => Pin::new(body).poll_frame(context),
            Source::Kept(reader) => {
                reader.poll_frame(context).unwrap_or_else(|| Poll::Ready(Some(Err(RequestBodyError::Superseded))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Empty => true,
            Source::Client(body) => body.is_end_stream(),
            Source::Kept(reader) => reader.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Empty => SizeHint::with_exact(0),
            Source::Client(body) => body.size_hint(),
            Source::Kept(reader) => reader.size_hint(),
        }
    }
}
