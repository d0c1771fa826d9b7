//! Body of a request on its way from the client to the backend. Does not contain its head.

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
pub(crate) struct RequestBody(Option<ClientBody>);

struct ClientBody {
    incoming: Incoming,
    admission: Admission,
    stream: Arc<Stream>,
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
    /// The client has gone, or its body is malformed.
    #[error(transparent)]
    Client(#[from] hyper::Error),
}

impl RequestBody {
    pub(crate) fn empty() -> Self {
        RequestBody(None)
    }

    /// A client's body of the request that `stream` belongs to.
    pub(crate) fn new(incoming: Incoming, admission: &Admission, stream: Arc<Stream>, idle: Duration) -> Self {
        RequestBody(Some(ClientBody { incoming, admission: admission.clone(), stream, idle, timer: None }))
    }
}

impl ClientBody {
    fn fail(&self, error: RequestBodyError) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let failure = match error {
            RequestBodyError::Idle => ClientFailure::Idle,
            RequestBodyError::Client(_) => ClientFailure::Broken,
        };
        self.stream.record_client_failure(failure);
        Poll::Ready(Some(Err(error)))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timer = None;
                let now = self.admission.now();
                if self.incoming.is_end_stream() {
                    self.stream.record_sent(now)
                } else {
                    self.stream.record_piece(now)
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.fail(error.into()),
            Poll::Ready(None) => {
                self.stream.record_sent(self.admission.now());
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.timer.is_none() {
                    self.stream.wait_for_client(self.admission.now());
                }
                let idle = self.idle;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                if timer.as_mut().poll(context).is_ready() {
                    return self.fail(RequestBodyError::Idle);
                }
                Poll::Pending
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        self.get_mut().0.as_mut().map_or(Poll::Ready(None), |body| body.poll(context))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |body| body.incoming.size_hint())
    }
}
