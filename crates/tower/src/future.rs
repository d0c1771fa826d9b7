//! The future of a response: ready at once after a refusal; otherwise the service's, with its time on the worker. Never here: the
//! decision.

use crate::body::GuardedBody;
use crate::service::tell_load;
use crate::settings::Until;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use http_body::Body;
use leeward_edge::{Gate, Outcome, Ticket};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pin_project! {
    /// Response of a guarded service. Dropping it abandons the request.
    pub struct ResponseFuture<F, B: Body> {
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B: Body> {
        Served { #[pin] inner: F, ticket: Option<Ticket>, worked: Duration, until: Until, reporter: Option<Gate> },
        Refused { response: Option<Response<GuardedBody<B>>> },
    }
}

impl<F, B: Body> ResponseFuture<F, B> {
    /// The service's own response, with the load of `reporter` if there is one.
    pub(crate) fn served(inner: F, ticket: Option<Ticket>, until: Until, reporter: Option<Gate>) -> Self {
        ResponseFuture { state: State::Served { inner, ticket, worked: Duration::ZERO, until, reporter } }
    }

    pub(crate) fn refused(response: Response<GuardedBody<B>>) -> Self {
        ResponseFuture { state: State::Refused { response: Some(response) } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<GuardedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("polled after it was ready")))
            }
            StateProjection::Served { inner, ticket, worked, until, reporter } => {
                if ticket.is_none() {
                    return inner.poll(context).map_ok(|response| response.map(|body| GuardedBody::new(body, None)));
                }
                // Time on the worker, not time that passes: a handler that awaits costs nothing meanwhile.
                let began = Instant::now();
                let polled = inner.poll(context);
                *worked += began.elapsed();
                match polled {
                    Poll::Pending => Poll::Pending,
                    // The service's own failure: no answer. Dropping the ticket says so.
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Ready(Ok(mut response)) => {
                        tell_load(reporter, response.headers_mut());
                        let mut ticket = ticket.take();
                        if let Some(ticket) = &mut ticket {
                            ticket.worked(*worked);
                        }
                        if *until == Until::Headers || is_endless(response.status(), response.headers()) {
                            ticket.take().into_iter().for_each(|ticket| ticket.finish(Outcome::Completed));
                        }
                        Poll::Ready(Ok(response.map(|body| GuardedBody::new(body, ticket))))
                    }
                }
            }
        }
    }
}

/// A stream of events or an upgraded connection: being open is no load.
fn is_endless(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS
        || headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}
