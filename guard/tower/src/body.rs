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
        // Bytes that are still to come, if the length is known.
        remaining: Option<u64>,
        profiled: ProfiledRequest,
    }

    impl<B: Body> PinnedDrop for GuardedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let has_ended = this.inner.as_ref().get_ref().as_ref().is_none_or(|inner| inner.is_end_stream())
                || *this.remaining == Some(0);
            // A server stops polling once it knows that no frame follows; over HTTP/1, hyper knows
            // it by the length.
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
            remaining: None,
            profiled: ProfiledRequest::default(),
        }
    }

    /// A body of this length, if it is known, that ends its request with this outcome.
    pub(crate) fn with_permit(inner: B, permit: Option<Permit>, outcome: Outcome, length: Option<u64>) -> Self {
        let mut body = GuardedBody::unguarded(inner);
        (body.permit, body.outcome, body.remaining) = (permit, outcome, length);
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
            remaining: None,
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
                if let (Some(remaining), Some(data)) = (this.remaining.as_mut(), frame.data_ref()) {
                    *remaining = remaining.saturating_sub(data.remaining() as u64);
                }
                if frame.trailers_ref().is_some_and(status::is_failed_call) {
                    *this.outcome = Outcome::Failed;
                }
            }
            // A client that goes away drops the body, unless the body reads that client's upload.
            Some(Err(_)) => {
                if let Some(permit) = this.permit.take() {
                    permit.finish(Outcome::Failed);
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ms, slo};
    use http::{Method, Request, Response};
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::task::Waker;
    use tower_layer::Layer;
    use tower_service::Service;

    /// So many pieces of five bytes; it never says that it has ended.
    struct Pieces(usize);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(rest) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = rest;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"hello")))))
        }
    }

    /// Answers in two pieces, with the status and the length that the request has as headers.
    #[derive(Clone)]
    struct PiecesService;

    impl Service<Request<String>> for PiecesService {
        type Response = Response<Pieces>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Pieces>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<String>) -> Self::Future {
            let mut response = Response::new(Pieces(2));
            *response.status_mut() = request.headers()["status"].to_str().unwrap().parse().unwrap();
            if let Some(length) = request.headers().get("content-length") {
                response.headers_mut().insert("content-length", length.clone());
            }
            ready(Ok(response))
        }
    }

    /// Answers with one piece and a failure of the service.
    #[derive(Clone)]
    struct BrokenService;

    struct BrokenBody(usize);

    impl Body for BrokenBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0 += 1;
            let piece = Frame::data(Bytes::from_static(b"hello"));
            Poll::Ready(Some(if self.0 == 1 { Ok(piece) } else { Err("the disk is gone") }))
        }
    }

    impl Service<Request<String>> for BrokenService {
        type Response = Response<BrokenBody>;
        type Error = Infallible;
        type Future = Ready<Result<Response<BrokenBody>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            ready(Ok(Response::new(BrokenBody(0))))
        }
    }

    #[tokio::test]
    async fn a_body_that_fails_midway_is_a_failure_and_one_that_nobody_reads_is_abandoned() {
        for version in [http::Version::HTTP_11, http::Version::HTTP_2] {
            for polls in 0..3 {
                let layer = slo(ms(20_000));
                let request = Request::builder().version(version).body(String::new()).unwrap();
                let mut body = layer.layer(BrokenService).call(request).await.unwrap().into_body();
                for _ in 0..polls {
                    let _ = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
                }
                drop(body);
                let counts = layer.gate().counts();
                let found = (counts.failed, counts.abandoned, counts.in_flight());
                let fails = polls == 2;
                assert_eq!(found, (u64::from(fails), u64::from(!fails), 0), "{version:?} after {polls}");
            }
        }
    }

    /// A server of HTTP/1 polls a body up to its length, and never one that it does not send.
    #[tokio::test]
    async fn a_body_that_is_sent_whole_is_completed_although_nobody_polls_its_end() {
        for (method, status, length, polls, is_completed) in [
            (Method::GET, "200", Some("10"), 2, true),
            (Method::GET, "200", Some("10"), 1, false),
            (Method::GET, "200", Some("10"), 0, false),
            (Method::GET, "200", Some("0"), 0, true),
            (Method::GET, "200", Some("ten"), 2, false),
            (Method::GET, "200", None, 2, false),
            (Method::GET, "200", None, 3, true),
            (Method::HEAD, "200", Some("10"), 0, true),
            (Method::GET, "204", None, 0, true),
            (Method::GET, "304", Some("10"), 0, true),
        ] {
            let layer = slo(ms(20_000));
            let request = Request::builder().method(&method).header("status", status);
            let request = length.into_iter().fold(request, |request, length| request.header("content-length", length));
            let response = layer.layer(PiecesService).call(request.body(String::new()).unwrap()).await.unwrap();
            let mut body = response.into_body();
            for _ in 0..polls {
                let _ = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
            }
            drop(body);
            let counts = layer.gate().counts();
            let found = (counts.completed, counts.abandoned, counts.in_flight());
            let expected = (u64::from(is_completed), u64::from(!is_completed), 0);
            assert_eq!(found, expected, "{method} {status} {length:?} after {polls}");
        }
    }
}
