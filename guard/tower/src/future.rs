//! The future of a response: of a refusal as soon as the request's body is out of the way; otherwise the service's,
//! with its time on the worker and inside of the request's scope. Never here: the decision.

use crate::body::GuardedBody;
use crate::drain::{Drain, UnreadBody};
use crate::headers;
use crate::queue_wait::QueueWait;
use crate::rejection;
use crate::scope::Scope;
use crate::settings::EndOfRequest;
use crate::status;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;
use leeward_core::units::Nanos;
use leeward_gate::{Gate, Outcome, Permit};
use leeward_runtime::clock;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pin_project! {
    /// Response of a guarded service, to a request with a body of type `B`. Dropping it abandons the request.
    pub struct ResponseFuture<F, R: Body, B> {
        #[pin]
        state: State<F, R, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, R: Body, B> {
        Served { #[pin] inner: F, admitted: Option<AdmittedRequest>, until: EndOfRequest, reporter: Option<Gate> },
        Rejected { response: Option<Response<GuardedBody<R>>>, #[pin] drain: Option<Drain<B>> },
    }
}

/// An admitted request between two polls.
pub(crate) struct AdmittedRequest {
    pub(crate) permit: Permit,
    pub(crate) scope: Scope,
    /// Time on the worker so far.
    pub(crate) cpu_time: Nanos,
    /// The name by which the client calls its route, where the route has none yet.
    pub(crate) route_name: Option<Box<str>>,
    /// Until it has begun and no longer occupies a worker, in a gate with a room.
    pub(crate) queue_wait: Option<QueueWait>,
}

impl<F, R: Body, B: Body> ResponseFuture<F, R, B> {
    /// The service's own response, with the load of `reporter` if there is one.
    pub(crate) fn served(
        inner: F,
        admitted: Option<AdmittedRequest>,
        until: EndOfRequest,
        reporter: Option<Gate>,
    ) -> Self {
        ResponseFuture { state: State::Served { inner, admitted, until, reporter } }
    }

    pub(crate) fn rejected(mut response: Response<GuardedBody<R>>, rest: UnreadBody<B>) -> Self {
        let drain = match rest {
            UnreadBody::None => None,
            UnreadBody::Close => {
                set_connection_close(&mut response);
                None
            }
            UnreadBody::Drain(drain) => Some(drain),
        };
        ResponseFuture { state: State::Rejected { response: Some(response), drain } }
    }
}

impl<F, R: Body<Data: 'static>, B> State<F, R, B> {
    /// Waits for the request's turn, if it has to; `Some`: it is refused without having begun.
    fn poll_queue(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Response<GuardedBody<R>>>> {
        let StateProjection::Served { admitted, reporter, .. } = self.project() else { return Poll::Ready(None) };
        let Some(AdmittedRequest { permit: ticket, queue_wait: Some(turn), .. }) = admitted else {
            return Poll::Ready(None);
        };
        let now = ticket.gate().now();
        let called = ready!(turn.poll(now, context));
        let Some(AdmittedRequest { permit: ticket, mut scope, cpu_time: worked, route_name: claims, queue_wait: turn }) =
            admitted.take()
        else {
            unreachable!("looked at above")
        };
        match ticket.begin_at(now, called) {
            Ok(ticket) => {
                scope.begin(&ticket);
                *admitted = Some(AdmittedRequest {
                    permit: ticket,
                    scope,
                    cpu_time: worked,
                    route_name: claims,
                    queue_wait: turn,
                });
                Poll::Ready(None)
            }
            Err(refusal) => {
                let grpc = turn.as_ref().and_then(|turn| turn.grpc.as_ref());
                let mut response = rejection::response(&refusal, grpc);
                headers::write_load(reporter, response.headers_mut());
                if turn.is_some_and(|turn| turn.closes_connection) {
                    set_connection_close(&mut response);
                }
                Poll::Ready(Some(response))
            }
        }
    }
}

fn set_connection_close<R: Body>(response: &mut Response<GuardedBody<R>>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

impl<F, R, B, E> Future for ResponseFuture<F, R, B>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data: 'static>,
    B: Body,
{
    type Output = Result<Response<GuardedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        if let Some(response) = ready!(state.as_mut().poll_queue(context)) {
            // What was not begun is dropped before its refusal is sent.
            state.set(State::Rejected { response: Some(response), drain: None });
        }
        match state.project() {
            StateProjection::Rejected { response, drain } => {
                let whole = drain.as_pin_mut().map(|drain| drain.poll(context));
                if whole == Some(Poll::Pending) {
                    return Poll::Pending;
                }
                let mut response = response.take().expect("polled after it was ready");
                if whole == Some(Poll::Ready(false)) {
                    set_connection_close(&mut response);
                }
                Poll::Ready(Ok(response))
            }
            StateProjection::Served { inner, admitted, until, reporter } => {
                let Some(request) = admitted else {
                    return inner.poll(context).map_ok(|response| response.map(GuardedBody::unguarded));
                };
                // Time on the worker, not time that passes: a handler that awaits costs nothing meanwhile.
                let began = clock::process();
                let polled = request.scope.enter(|| inner.poll(context));
                let now = clock::process();
                request.cpu_time += now.since(began);
                // Ended, or awaiting something: a worker is free for the next.
                request.queue_wait = None;
                // The service's own failure is no answer: dropping the ticket says so.
                let mut response = ready!(polled)?;
                headers::write_load(reporter, response.headers_mut());
                let Some(AdmittedRequest { permit: mut ticket, scope, cpu_time: worked, route_name: claims, .. }) =
                    admitted.take()
                else {
                    unreachable!("looked at above")
                };
                if let Some(name) = claims {
                    if status::is_unknown(&response) { ticket.clear_route() } else { ticket.name_route(&name) }
                }
                ticket.record_cpu_time(Duration::from_nanos(worked.0));
                ticket.record_queue_time(scope.queue_time(&ticket));
                if let Some(refused) = scope.downstream_rejected() {
                    // A handler that has found another answer has not worked in vain.
                    ticket.record_downstream(refused && !status::is_success(&response));
                }
                // Most answers are whole by now: one reading of the clock has been enough for them.
                let now = ticket.gate().time_at(now);
                ticket.record_answer_start(now);
                let outcome = if scope.is_lock_rejected() && !status::is_success(&response) {
                    // A handler whose lock refused, and that has found no other answer.
                    Outcome::Rejected
                } else if status::is_failure(&response) {
                    Outcome::Failed
                } else {
                    Outcome::Completed
                };
                let is_whole =
                    *until == EndOfRequest::Headers || response.body().is_end_stream() || is_endless(&response);
                Poll::Ready(Ok(if outcome == Outcome::Rejected || is_whole {
                    ticket.finish_at(now, outcome);
                    response.map(GuardedBody::unguarded)
                } else {
                    response.map(|body| GuardedBody::with_permit(body, ticket, outcome))
                }))
            }
        }
    }
}

/// A stream of events or an upgraded connection: being open is no load.
fn is_endless<R>(response: &Response<R>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS || headers::is_event_stream(response.headers())
}
