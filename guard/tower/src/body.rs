//! A response's body that holds the request's ticket until it ends. Never here: its bytes.

use crate::status;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use leeward_gate::{Outcome, Permit};
use pin_project_lite::pin_project;
use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// Body of a response: the service's, or none after a refusal.
    pub struct GuardedBody<B: Body> {
        // `None` after a refusal.
        #[pin]
        inner: Option<B>,
        // Content of a refusal, unless it has none.
        rejection_body: Option<B::Data>,
        permit: Option<Permit>,
        // What the request is worth if all of the body is sent.
        outcome: Outcome,
    }

    impl<B: Body> PinnedDrop for GuardedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let ended = this.inner.as_ref().get_ref().as_ref().is_none_or(|inner| inner.is_end_stream());
            // Servers stop asking once they know that nothing follows.
            if let (Some(ticket), true) = (this.permit.take(), ended) {
                ticket.finish(*this.outcome);
            }
        }
    }
}

impl<B: Body> GuardedBody<B> {
    /// A body without a request to end.
    pub(crate) fn unguarded(inner: B) -> Self {
        GuardedBody { inner: Some(inner), rejection_body: None, permit: None, outcome: Outcome::Completed }
    }

    /// A body whose end is the request's, with this outcome.
    pub(crate) fn with_permit(inner: B, ticket: Permit, outcome: Outcome) -> Self {
        GuardedBody { inner: Some(inner), rejection_body: None, permit: Some(ticket), outcome }
    }

    pub(crate) fn rejected() -> Self {
        GuardedBody { inner: None, rejection_body: None, permit: None, outcome: Outcome::Rejected }
    }

    /// Content of a refusal; `None` where the service's bodies have another kind of data than such
    /// bytes.
    pub(crate) fn with_content(content: &'static [u8]) -> Option<Self>
    where
        B::Data: 'static,
    {
        let own = cast(Bytes::from_static(content)).or_else(|| cast(content))?;
        Some(GuardedBody { inner: None, rejection_body: Some(own), permit: None, outcome: Outcome::Rejected })
    }
}

/// A value as one of type `T`, if that is its type. Frameworks have [`Bytes`] everywhere; asking
/// all users for a conversion would lock out those that have something else.
fn cast<T: 'static>(value: impl Any) -> Option<T> {
    let mut value = Some(value);
    (&mut value as &mut dyn Any).downcast_mut::<Option<T>>()?.take()
}

impl<B: Body + Default> Default for GuardedBody<B> {
    fn default() -> Self {
        GuardedBody::unguarded(B::default())
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
        let Some(inner) = this.inner.as_pin_mut() else {
            return Poll::Ready(this.rejection_body.take().map(|body| Ok(Frame::data(body))));
        };
        let frame = ready!(inner.poll_frame(context));
        match &frame {
            None => {
                if let Some(ticket) = this.permit.take() {
                    ticket.finish(*this.outcome);
                }
            }
            Some(Ok(frame)) => {
                if frame.trailers_ref().is_some_and(status::is_failed_status) {
                    *this.outcome = Outcome::Failed;
                }
            }
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.rejection_body.is_none(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let own = || SizeHint::with_exact(self.rejection_body.as_ref().map_or(0, |own| own.remaining() as u64));
        self.inner.as_ref().map_or_else(own, Body::size_hint)
    }
}
