//! Response body that holds the request's permit until the body ends. Does not contain the bytes.

use crate::profile::ProfiledRequest;
use crate::status;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use leeward_gate::{Outcome, Permit};
use pin_project_lite::pin_project;
use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// Body of a response: the service's body, or a rejection's content.
    pub struct GuardedBody<B: Body> {
        // `None` for a rejection.
        #[pin]
        inner: Option<B>,
        // Content of a rejection, if it has any.
        rejection_body: Option<B::Data>,
        permit: Option<Permit>,
        // Outcome of the request if the whole body is sent.
        outcome: Outcome,
        profiled: ProfiledRequest,
    }

    impl<B: Body> PinnedDrop for GuardedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let has_ended = this.inner.as_ref().get_ref().as_ref().is_none_or(|inner| inner.is_end_stream());
            // A server stops polling once it knows that no frame follows.
            if let (Some(permit), true) = (this.permit.take(), has_ended) {
                permit.finish(*this.outcome);
            }
        }
    }
}

impl<B: Body> GuardedBody<B> {
    /// A body without a permit.
    pub(crate) fn unguarded(inner: B) -> Self {
        GuardedBody {
            inner: Some(inner),
            rejection_body: None,
            permit: None,
            outcome: Outcome::Completed,
            profiled: ProfiledRequest::default(),
        }
    }

    /// A body that ends its request with this outcome.
    pub(crate) fn with_permit(inner: B, permit: Option<Permit>, outcome: Outcome) -> Self {
        let mut body = GuardedBody::unguarded(inner);
        (body.permit, body.outcome) = (permit, outcome);
        body
    }

    /// The profiled request goes on until the end of this body.
    pub(crate) fn with_profiled(mut self, profiled: ProfiledRequest) -> Self {
        self.profiled = profiled;
        self
    }

    /// Takes the service's own body, if no request ends with it.
    #[cfg(feature = "axum")]
    pub(crate) fn take_unguarded(&mut self) -> Option<B> {
        let is_guarded = self.permit.is_some() || self.profiled.is_reported();
        if is_guarded { None } else { self.inner.take() }
    }

    pub(crate) fn rejected() -> Self {
        GuardedBody {
            inner: None,
            rejection_body: None,
            permit: None,
            outcome: Outcome::Rejected,
            profiled: ProfiledRequest::default(),
        }
    }

    /// A rejection's content; `None` if the service's bodies have a data type other than [`Bytes`]
    /// or `&[u8]`.
    pub(crate) fn with_content(content: &'static [u8]) -> Option<Self>
    where
        B::Data: 'static,
    {
        let data = cast(Bytes::from_static(content)).or_else(|| cast(content))?;
        let mut body = GuardedBody::rejected();
        body.rejection_body = Some(data);
        Some(body)
    }
}

/// Casts a value to type `T`, if that is its type.
///
/// Frameworks use [`Bytes`] everywhere. A required conversion would exclude services with another
/// type.
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
        let poll = || this.profiled.poll(context, |context| inner.poll_frame(context));
        let frame = ready!(match this.permit {
            Some(permit) => permit.run(poll),
            None => poll(),
        });
        match &frame {
            None => {
                *this.profiled = ProfiledRequest::default();
                if let Some(permit) = this.permit.take() {
                    permit.finish(*this.outcome);
                }
            }
            Some(Ok(frame)) => {
                if frame.trailers_ref().is_some_and(status::is_failed_call) {
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
        let rejection_size =
            || SizeHint::with_exact(self.rejection_body.as_ref().map_or(0, |body| body.remaining() as u64));
        self.inner.as_ref().map_or_else(rejection_size, Body::size_hint)
    }
}
