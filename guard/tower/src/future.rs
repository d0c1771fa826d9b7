//! Future of a response. A rejection is ready once the request's body is drained. Otherwise the
//! service's future runs inside the request's scope, and its CPU time is measured. Does not contain
//! the decision.

use crate::body::GuardedBody;
use crate::drain::{Drain, UnreadBody};
use crate::headers;
use crate::profile::ProfiledRequest;
use crate::queue_wait::QueueWait;
use crate::rejection;
use crate::scope::{self, Scope};
use crate::settings::EndOfRequest;
use crate::status;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{DecisionReason, Gate, Outcome, Permit};
use leeward_runtime::clock;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pin_project! {
    /// Response of a guarded service to a request with a body of type `B`. Dropping it abandons the
    /// request.
    pub struct ResponseFuture<F, R: Body, B> {
        #[pin]
        state: State<F, R, B>,
        profiled: ProfiledRequest,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, R: Body, B> {
        Served { #[pin] inner: F, admitted: Option<AdmittedRequest>, until: EndOfRequest, reporter: Option<Gate> },
        Rejected { response: Option<Response<GuardedBody<R>>>, #[pin] drain: Option<Drain<B>> },
    }
}

/// State of an admitted request between two polls.
pub(crate) struct AdmittedRequest {
    pub(crate) permit: Permit,
    pub(crate) scope: Scope,
    /// CPU time so far.
    pub(crate) cpu_time: Nanos,
    /// Route name used by the client, if the route has no name yet.
    pub(crate) route_name: Option<Box<str>>,
    /// Wait in the gate's queue; present until the request has begun and no longer occupies a
    /// worker. Boxed: most requests wait in none, and each is moved several times.
    pub(crate) queue_wait: Option<Box<QueueWait>>,
}

impl AdmittedRequest {
    /// Records that the answer's head is complete at this reading of the process's clock; returns
    /// the outcome of the request if the body follows whole.
    fn record_answer<R>(&mut self, response: &Response<R>, reading: Time) -> Outcome {
        let AdmittedRequest { permit, scope, cpu_time, route_name, .. } = self;
        if let Some(name) = route_name.take() {
            if status::is_unknown(response) { permit.clear_route() } else { permit.name_route(&name) }
        }
        permit.record_cpu_time(Duration::from_nanos(cpu_time.0));
        permit.record_queue_time(scope.queue_time());
        if let Some(rejected) = scope.downstream_rejected() {
            // A handler that found another answer has not wasted its work.
            permit.record_downstream(rejected && !status::is_success(response));
        }
        // Most responses are complete here, so one clock reading serves for both times.
        permit.record_answer_start(permit.gate().time_at(reading));
        let inside = response.extensions().get::<RejectedInside>().map(|rejected| rejected.0);
        let rejected = inside.or(scope.is_lock_rejected().then_some(DecisionReason::Lock));
        if let Some(reason) = rejected.filter(|_| !status::is_success(response)) {
            // Another layer's gate rejected it, or the handler's lock, and nobody found another
            // answer.
            permit.record_rejection(reason);
            Outcome::Rejected
        } else if status::is_failure(response) {
            Outcome::Failed
        } else {
            Outcome::Completed
        }
    }
}

impl<F, R: Body, B: Body> ResponseFuture<F, R, B> {
    /// The service's own response, with the load of `reporter` if it is set.
    pub(crate) fn served(
        inner: F,
        admitted: Option<AdmittedRequest>,
        until: EndOfRequest,
        reporter: Option<Gate>,
        profiled: ProfiledRequest,
    ) -> Self {
        ResponseFuture { state: State::Served { inner, admitted, until, reporter }, profiled }
    }

    pub(crate) fn rejected(
        mut response: Response<GuardedBody<R>>,
        reason: DecisionReason,
        rest: UnreadBody<B>,
        profiled: ProfiledRequest,
    ) -> Self {
        mark_rejected(&mut response, reason);
        let drain = match rest {
            UnreadBody::None => None,
            UnreadBody::Close => {
                set_connection_close(&mut response);
                None
            }
            UnreadBody::Drain(drain) => Some(drain),
        };
        ResponseFuture { state: State::Rejected { response: Some(response), drain }, profiled }
    }
}

impl<F, R: Body<Data: 'static>, B: Body> State<F, R, B> {
    /// Waits for the call of a queued request; `Some`: the request is rejected before it begins.
    fn poll_queue(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Response<GuardedBody<R>>>> {
        let StateProjection::Served { admitted, reporter, .. } = self.project() else { return Poll::Ready(None) };
        let Some(AdmittedRequest { permit: admission, queue_wait: Some(wait), .. }) = admitted else {
            return Poll::Ready(None);
        };
        let now = admission.gate().now();
        let called = ready!(wait.poll(now, context));
        let Some(AdmittedRequest { permit: admission, mut scope, cpu_time: spent, route_name: name, queue_wait: wait }) =
            admitted.take()
        else {
            unreachable!("looked at above")
        };
        match admission.begin_at(now, called) {
            Ok(admission) => {
                scope.begin(&admission);
                *admitted = Some(AdmittedRequest {
                    permit: admission,
                    scope,
                    cpu_time: spent,
                    route_name: name,
                    queue_wait: wait,
                });
                Poll::Ready(None)
            }
            Err(rejection) => {
                let grpc = wait.as_ref().and_then(|wait| wait.grpc.as_ref());
                let mut response = rejection::response(&rejection, grpc);
                mark_rejected(&mut response, rejection.reason);
                headers::write_load(reporter, response.headers_mut());
                if wait.is_some_and(|wait| wait.closes_connection) {
                    set_connection_close(&mut response);
                }
                Poll::Ready(Some(response))
            }
        }
    }

    /// Polls for the response.
    fn poll_response<E>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<GuardedBody<R>>, E>>
    where
        F: Future<Output = Result<Response<R>, E>>,
    {
        if let Some(response) = ready!(self.as_mut().poll_queue(context)) {
            // The service's future is dropped before the rejection is sent.
            self.set(State::Rejected { response: Some(response), drain: None });
        }
        match self.project() {
            StateProjection::Rejected { response, drain } => {
                let is_drained = drain.as_pin_mut().map(|drain| drain.poll(context));
                if is_drained == Some(Poll::Pending) {
                    return Poll::Pending;
                }
                let mut response = response.take().expect("polled after it was ready");
                if is_drained == Some(Poll::Ready(false)) {
                    set_connection_close(&mut response);
                }
                Poll::Ready(Ok(response))
            }
            StateProjection::Served { inner, admitted, until, reporter } => {
                let Some(request) = admitted else {
                    return inner.poll(context).map_ok(|response| response.map(GuardedBody::unguarded));
                };
                // CPU time, not elapsed time: a handler that awaits occupies no worker.
                let began = clock::process();
                let polled = request.permit.run(|| request.scope.enter(|| inner.poll(context)));
                let now = clock::process();
                request.cpu_time += now.since(began);
                // The poll has ended or awaits, so the worker is free for the next request.
                request.queue_wait = None;
                let mut response = match ready!(polled) {
                    Ok(response) => response,
                    Err(error) => {
                        request.permit.end_at(request.permit.gate().time_at(now), Outcome::Failed);
                        return Poll::Ready(Err(error));
                    }
                };
                headers::write_load(reporter, response.headers_mut());
                let outcome = request.record_answer(&response, now);
                let is_whole =
                    *until == EndOfRequest::Headers || response.body().is_end_stream() || ends_with_head(&response);
                if outcome == Outcome::Rejected && response.extensions().get::<RejectedInside>().is_none() {
                    mark_rejected(&mut response, DecisionReason::Lock);
                }
                if outcome == Outcome::Rejected || is_whole {
                    // Ended where it lies: moving it costs as much as a lock.
                    let now = request.permit.gate().time_at(now);
                    request.permit.end_at(now, outcome);
                    return Poll::Ready(Ok(response.map(GuardedBody::unguarded)));
                }
                let mut permit = admitted.take().map(|request| request.permit);
                // It was answered in time or not; what it still sends makes nobody late.
                permit.iter_mut().for_each(Permit::suspend);
                let length = content_length(&response);
                Poll::Ready(Ok(response.map(|body| GuardedBody::with_permit(body, permit, outcome, length))))
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
        let this = self.project();
        let response = ready!(this.profiled.poll(context, |context| this.state.poll_response(context)));
        let profiled = std::mem::take(this.profiled);
        if !profiled.is_reported() {
            return Poll::Ready(response);
        }
        Poll::Ready(response.map(|response| {
            let is_over = response.body().is_end_stream() || ends_with_head(&response);
            if is_over { response } else { response.map(|body| body.with_profiled(profiled)) }
        }))
    }
}

/// Whether no body follows the head, or an event stream or an upgraded connection: being open is no
/// load.
fn ends_with_head<R>(response: &Response<R>) -> bool {
    let has_no_body = matches!(
        response.status(),
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    has_no_body || headers::is_event_stream(response.headers())
}

/// Length of the response's body, as a server of HTTP/1 knows it.
fn content_length<R: Body>(response: &Response<R>) -> Option<u64> {
    let announced = || response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(announced)
}

/// Extension of a response by which a gate of this process rejected the request. A header would not
/// do: a backend's response has the same.
#[derive(Clone, Copy)]
struct RejectedInside(DecisionReason);

/// Tells a layer around this one, if there is one, that the response is a rejection. A layer that
/// runs this one in another task is not seen, and takes the response for a failure.
fn mark_rejected<R>(response: &mut Response<R>, reason: DecisionReason) {
    // An extension allocates.
    if scope::current_request().is_some() {
        response.extensions_mut().insert(RejectedInside(reason));
    }
}
