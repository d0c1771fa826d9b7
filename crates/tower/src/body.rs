//! A response's body that holds the request's ticket until it ends. Never here: its bytes.

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use leeward_edge::{Outcome, Ticket};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// Body of a response: the service's, or none after a refusal.
    pub struct GuardedBody<B: Body> {
        // `None` after a refusal.
        #[pin]
        inner: Option<B>,
        ticket: Option<Ticket>,
    }

    impl<B: Body> PinnedDrop for GuardedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let ended = this.inner.as_ref().get_ref().as_ref().is_none_or(|inner| inner.is_end_stream());
            // Servers stop asking once they know that nothing follows.
            if let (Some(ticket), true) = (this.ticket.take(), ended) {
                ticket.finish(Outcome::Completed);
            }
        }
    }
}

impl<B: Body> GuardedBody<B> {
    pub(crate) fn new(inner: B, ticket: Option<Ticket>) -> Self {
        GuardedBody { inner: Some(inner), ticket }
    }

    pub(crate) fn refused() -> Self {
        GuardedBody { inner: None, ticket: None }
    }
}

impl<B: Body + Default> Default for GuardedBody<B> {
    fn default() -> Self {
        GuardedBody::new(B::default(), None)
    }
}

fn end(ticket: &mut Option<Ticket>) {
    if let Some(ticket) = ticket.take() {
        ticket.finish(Outcome::Completed);
    }
}

impl<B> Body for GuardedBody<B>
where
    B: Body,
    B::Data: Buf,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else { return Poll::Ready(None) };
        let frame = ready!(inner.poll_frame(context));
        if frame.is_none() {
            end(this.ticket);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
