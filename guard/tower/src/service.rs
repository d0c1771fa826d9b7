//! The guarded service: decides in `call`, where the request is known, and reserves nothing of its
//! gate in `poll_ready`. Does not contain sockets.

use crate::body::GuardedBody;
use crate::drain::UnreadBody;
use crate::future::{AdmittedRequest, ResponseFuture};
use crate::headers;
use crate::profile::ProfiledRequest;
use crate::queue_wait::QueueWait;
use crate::rejection;
use crate::scope::{RequestContext, Scope};
use crate::settings::{EndOfRequest, Slo, hash};
use crate::stamp::Stamp;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body::Body;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Gate, NAME_MAX, Rejection, RequestInfo};
use leeward_runtime::clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A service with a gate in front.
#[derive(Clone, Debug)]
pub struct GuardedService<S> {
    inner: S,
    // Frameworks clone a service for every request; a clone copies one reference-counted pointer.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Slo,
    gate: Gate,
}

impl Shared {
    /// The gate, if responses should report its load.
    fn reporter(&self) -> Option<Gate> {
        self.settings.reports_load.then(|| self.gate.clone())
    }
}

impl<S> GuardedService<S> {
    pub(crate) fn new(inner: S, settings: Slo, gate: Gate) -> Self {
        GuardedService { inner, shared: Arc::new(Shared { settings, gate }) }
    }

    /// The gate, with its counters and decisions.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Collects the knowledge of a request, and the name of its route; `None`: the request bypasses
    /// the gate.
    fn request_info<'a>(&self, request: &'a Parts, reading: Time) -> Option<(RequestInfo, Option<RouteName<'a>>)> {
        // Also of a request that bypasses the gate: its response is one to an earlier request.
        let age = age(request, reading);
        let path = request.uri.path();
        if path.starts_with("/grpc.health.v1.Health/") || is_preflight(request) {
            return None;
        }
        let parsed = headers::read(&request.headers);
        if parsed.malformed > 0 {
            (0..parsed.malformed).for_each(|_| self.shared.gate.record_malformed());
        }
        let name = route_name(request, parsed.is_grpc);
        let route = name.as_ref().map(|name| name.number(&self.shared.gate));
        // Requests that probably ask the same downstream services: those of one route, or with the
        // same first part of the path.
        let group = route.unwrap_or_else(|| path_group(path));
        let mut info = RequestInfo::default()
            .with_attempt(parsed.attempt)
            .with_route(route.unwrap_or(UNNAMED))
            .with_downstream(group);
        if let Some(class) = parsed.class {
            info = info.with_class(class);
        }
        if let Some(timeout) = parsed.timeout {
            info = info.with_timeout(timeout);
        }
        match age {
            Some(waited) => info = info.with_age(waited),
            None => self.shared.settings.probes.measure(&self.shared.gate),
        }
        if self.shared.settings.is_plain() {
            return Some((info, name));
        }
        // The application's functions may panic; the request is then served with the header data
        // alone.
        let described = catch_unwind(AssertUnwindSafe(|| {
            if self.shared.settings.exempt.as_ref().is_some_and(|exempt| exempt(request)) {
                return None;
            }
            Some(self.shared.settings.describe.as_ref().map_or(info, |describe| describe(request, info)))
        }));
        let described = described.unwrap_or_else(|_| {
            self.shared.gate.record_malformed();
            Some(info)
        });
        described.map(|info| (info, name))
    }

    /// Says whether the request waits in the queue.
    fn queued(&self, version: Version, info: RequestInfo) -> RequestInfo {
        // Servers of HTTP/2 and later read many requests at once and spawn a task for each. These
        // wait behind the decision, and the connection, which has the next ones, behind them.
        let queues = version >= Version::HTTP_2 || self.shared.settings.queues_all();
        if queues { info } else { info.with_skipped_queue() }
    }
}

impl<S: Clone> GuardedService<S> {
    /// The future of a rejected request.
    fn reject<F, R: Body<Data: 'static>, B: Body>(
        &mut self,
        rejection: &Rejection,
        parts: Parts,
        body: B,
        mut profiled: ProfiledRequest,
    ) -> ResponseFuture<F, R, B> {
        release_ready(&mut self.inner);
        let grpc = headers::grpc(&parts.headers);
        let mut response = rejection::response(rejection, grpc.as_ref());
        headers::write_load(&self.shared.reporter(), response.headers_mut());
        profiled.label(|| "(rejected)");
        profiled.pause();
        ResponseFuture::rejected(response, rejection.reason, UnreadBody::of(&parts, body), profiled)
    }
}

/// Releases the reservation of a service's `poll_ready` (a permit or a queue position) for a call
/// that is not made. A clone has reserved nothing.
pub(crate) fn release_ready<S: Clone>(service: &mut S) {
    *service = service.clone();
}

/// Whether a browser asks if a page of another origin may send a request (CORS preflight).
///
/// The page can't distinguish a rejected preflight from a network failure, and the request itself
/// passes the gate.
fn is_preflight(request: &Parts) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(ORIGIN)
        && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Time that a request had waited when it arrived here, if its connection has stamps.
fn age(request: &Parts, reading: Time) -> Option<std::time::Duration> {
    #[cfg(feature = "axum")]
    if let Some(info) = request.extensions.get::<::axum::extract::ConnectInfo<crate::stamp::Peer>>() {
        return info.0.stamp.age_of(request.version, reading);
    }
    request.extensions.get::<Stamp>()?.age_of(request.version, reading)
}

/// Name of a request's route: a router's pattern or a gRPC method. A plain path may hold
/// identifiers and is no name.
enum RouteName<'a> {
    /// The router's own pattern.
    #[cfg(feature = "axum")]
    Pattern(&'a str),
    /// A name from the client, which may be invented.
    Method(&'a str),
}

impl<'a> RouteName<'a> {
    fn text(&self) -> &'a str {
        match *self {
            #[cfg(feature = "axum")]
            RouteName::Pattern(name) => name,
            RouteName::Method(name) => name,
        }
    }

    /// Number of the route.
    fn number(&self, gate: &Gate) -> u8 {
        gate.route_number(self.text(), hash(self.text().as_bytes()))
    }
}

/// Name of a request's route; `is_grpc`: its headers are those of a gRPC call.
fn route_name(request: &Parts, is_grpc: bool) -> Option<RouteName<'_>> {
    #[cfg(feature = "axum")]
    if let Some(path) = request.extensions.get::<::axum::extract::MatchedPath>() {
        return Some(RouteName::Pattern(path.as_str()));
    }
    is_grpc.then(|| RouteName::Method(request.uri.path()))
}

/// Kind of a request for the profiler: its route, or its HTTP method. A method that the client
/// invented is `other`.
fn label(request: &Parts) -> &str {
    const METHODS: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
        Method::PATCH,
        Method::TRACE,
    ];
    match route_name(request, headers::grpc(&request.headers).is_some()) {
        Some(route) => route.text(),
        None if METHODS.contains(&request.method) => request.method.as_str(),
        None => "other",
    }
}

/// Number of all requests without a known route.
const UNNAMED: u8 = 0;

/// Number shared by all paths with the same first part.
fn path_group(path: &str) -> u8 {
    let path = path.trim_start_matches('/');
    hash(path.split('/').next().unwrap_or(path).as_bytes()) as u8
}

/// Names a route that has no name yet. A client's name is returned instead; it counts once the
/// service has answered.
fn name(route: Option<RouteName<'_>>, info: &RequestInfo, gate: &Gate) -> Option<Box<str>> {
    let route = route?;
    // The application may have set another route number.
    if gate.is_named(info.route) || info.route != route.number(gate) {
        return None;
    }
    match route {
        #[cfg(feature = "axum")]
        RouteName::Pattern(name) => {
            gate.name_route(info.route, name);
            None
        }
        RouteName::Method(name) => Some(name.chars().take(NAME_MAX).collect()),
    }
}

impl<S> Layer<S> for Slo {
    type Service = GuardedService<S>;

    fn layer(&self, inner: S) -> GuardedService<S> {
        GuardedService::new(inner, self.clone(), self.gate().clone())
    }
}

impl<S, B, R> Service<Request<B>> for GuardedService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: 'static>,
    B: Body,
{
    type Response = Response<GuardedBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let mut profiled = ProfiledRequest::start();
        profiled.label(|| label(&parts));
        let (shared, reading) = (&*self.shared, clock::process());
        // Servers of HTTP/1 send no body to HEAD, and drop one unread. A tunnel's is no load.
        let is_head = parts.method == Method::HEAD && parts.version < Version::HTTP_2;
        let has_no_body = is_head || parts.method == Method::CONNECT;
        let ends_at = if has_no_body { EndOfRequest::Headers } else { shared.settings.ends_at };
        let Some((info, route)) = self.request_info(&parts, reading) else {
            let inner = self.inner.call(Request::from_parts(parts, body));
            profiled.pause();
            return ResponseFuture::served(inner, None, ends_at, None, profiled);
        };
        let info = self.queued(parts.version, info);
        let client_name = name(route, &info, &shared.gate);
        let now = shared.gate.time_at(reading);
        let admission = match shared.gate.admit_at(now, &info) {
            Ok(permit) => permit,
            Err(rejection) => return self.reject(&rejection, parts, body, profiled),
        };
        let (mut admission, waiter) = match admission.enqueue(now) {
            Ok(waiter) => (admission, waiter),
            Err(error) => match admission.begin_at(now, Err(error)) {
                Ok(permit) => (permit, None),
                Err(rejection) => return self.reject(&rejection, parts, body, profiled),
            },
        };
        let mut scope = Scope::new(RequestContext::new(&info, reading), &admission);
        let wait = waiter.map(|waiter| {
            let closes = parts.version < Version::HTTP_2 && !body.is_end_stream();
            Box::new(QueueWait::new(waiter, headers::grpc(&parts.headers), closes))
        });
        // Some services begin their work in `call`.
        let inner = admission.run(|| scope.enter(|| self.inner.call(Request::from_parts(parts, body))));
        profiled.pause();
        ResponseFuture::served(
            inner,
            Some(AdmittedRequest {
                permit: admission,
                scope,
                cpu_time: Nanos::ZERO,
                route_name: client_name,
                queue_wait: wait,
            }),
            ends_at,
            shared.reporter(),
            profiled,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ms, slo};
    use bytes::Buf;
    use http::{HeaderMap, HeaderValue};
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    /// A body without bytes.
    struct Empty;

    impl Body for Empty {
        type Data = bytes::Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
            Poll::Ready(None)
        }
    }

    /// Has the same result for every request.
    #[derive(Clone)]
    struct ConstantService<E>(fn() -> Result<Response<Empty>, E>);

    impl<E> Service<Request<Empty>> for ConstantService<E> {
        type Response = Response<Empty>;
        type Error = E;
        type Future = Ready<Result<Response<Empty>, E>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Empty>) -> Self::Future {
            ready((self.0)())
        }
    }

    type AnswerService = ConstantService<Infallible>;

    fn answer_service() -> AnswerService {
        ConstantService(|| Ok(Response::new(Empty)))
    }

    /// Status, and the load that the response to a request with this budget reports.
    async fn reported_load(
        service: &mut GuardedService<AnswerService>,
        budget: &'static str,
    ) -> (u16, Option<HeaderValue>) {
        let mut request = Request::new(Empty);
        request.headers_mut().insert(headers::LEEWARD, HeaderValue::from_static(budget));
        let response = service.call(request).await.unwrap();
        (response.status().as_u16(), response.headers().get(headers::LOAD).cloned())
    }

    /// Answers by the path.
    #[derive(Clone)]
    struct MethodService;

    impl Service<Request<Empty>> for MethodService {
        type Response = Response<Empty>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Empty>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Empty>) -> Self::Future {
            let mut response = Response::new(Empty);
            let status = match request.uri().path() {
                "/shop.Cart/Add" => "0",
                "/shop.Cart/Breaks" => "13",
                _ => "12",
            };
            response.headers_mut().insert(headers::GRPC_STATUS, HeaderValue::from_static(status));
            ready(Ok(response))
        }
    }

    /// Has one permit for all of its clones; `poll_ready` takes it.
    struct LimitedService {
        free: Arc<AtomicUsize>,
        has_permit: bool,
    }

    impl Clone for LimitedService {
        fn clone(&self) -> Self {
            LimitedService { free: Arc::clone(&self.free), has_permit: false }
        }
    }

    impl Drop for LimitedService {
        fn drop(&mut self) {
            self.free.fetch_add(usize::from(self.has_permit), Ordering::Relaxed);
        }
    }

    impl Service<Request<Empty>> for LimitedService {
        type Response = Response<Empty>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Empty>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.has_permit = self.has_permit || self.free.swap(0, Ordering::Relaxed) > 0;
            if self.has_permit { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn call(&mut self, _: Request<Empty>) -> Self::Future {
            assert!(std::mem::take(&mut self.has_permit), "called without a permit");
            self.free.fetch_add(1, Ordering::Relaxed);
            ready(Ok(Response::new(Empty)))
        }
    }

    fn is_ready<S: Service<Request<Empty>>>(service: &mut S) -> bool {
        service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Its futures panic.
    #[derive(Clone)]
    struct PanicService;

    struct PanicFuture;

    impl std::future::Future for PanicFuture {
        type Output = Result<Response<Empty>, Infallible>;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            panic!("as asked");
        }
    }

    impl Service<Request<Empty>> for PanicService {
        type Response = Response<Empty>;
        type Error = Infallible;
        type Future = PanicFuture;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Empty>) -> Self::Future {
            PanicFuture
        }
    }

    #[tokio::test]
    async fn requests_of_http2_wait_in_the_queue_and_others_do_not() {
        let layer = slo(ms(20_000)).workers(1);
        let mut service = layer.layer(answer_service());
        let request = |version| Request::builder().version(version).body(Empty).unwrap();
        let first: Vec<_> = (0..5).map(|_| service.call(request(Version::HTTP_11))).collect();
        assert_eq!(layer.gate().waiting(), 0);
        let second: Vec<_> = (0..5).map(|_| service.call(request(Version::HTTP_2))).collect();
        assert_eq!(layer.gate().waiting(), 3, "one has begun, and one is ready");
        for call in second.into_iter().chain(first) {
            assert_eq!(call.await.unwrap().status(), 200);
        }
        assert_eq!((layer.gate().waiting(), layer.gate().counts().in_flight()), (0, 0));
    }

    /// Answers from a cache if the service inside has no answer.
    #[derive(Clone)]
    struct CachedService(GuardedService<AnswerService>);

    impl Service<Request<Empty>> for CachedService {
        type Response = Response<GuardedBody<Empty>>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0.poll_ready(context)
        }

        fn call(&mut self, request: Request<Empty>) -> Self::Future {
            let call = self.0.call(request);
            Box::pin(async move {
                let mut response = call.await?;
                *response.status_mut() = http::StatusCode::OK;
                Ok(response)
            })
        }
    }

    #[tokio::test]
    async fn a_layer_inside_another_rejects_for_both() {
        let layers = [slo(ms(20)), slo(ms(20)), slo(ms(20)).describe(|_, info| info.with_timeout(ms(0)))];
        let [outer, middle, inner] = &layers;
        let mut service = outer.layer(middle.layer(inner.layer(answer_service())));
        let response = service.call(Request::new(Empty)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[headers::REASON]),
            (503, &"deadline".parse().unwrap())
        );
        let counts = layers.each_ref().map(|layer| layer.gate().counts());
        let ends = counts.each_ref().map(|of| (of.rejections(), of.rejected_inside, of.failed, of.in_flight()));
        assert_eq!(ends, [(0, 1, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0)]);
        let snapshot = leeward_gate::Source::snapshot(outer.gate());
        let reasons: Vec<_> =
            snapshot.refused.iter().filter(|of| of.count > 0).map(|of| (of.reason, of.count)).collect();
        assert_eq!(reasons, [("deadline", 1)]);

        // Between them, another answer is found.
        let layers = [slo(ms(20)), slo(ms(20)).describe(|_, info| info.with_timeout(ms(0)))];
        let mut service = layers[0].layer(CachedService(layers[1].layer(answer_service())));
        assert_eq!(service.call(Request::new(Empty)).await.unwrap().status(), 200);
        let counts = layers.each_ref().map(|layer| layer.gate().counts());
        assert_eq!(counts.map(|of| (of.rejections(), of.rejected_inside, of.in_flight())), [(0, 0, 0), (1, 0, 0)]);

        // Passes on what a backend's gate answered.
        let layer = slo(ms(20));
        let answer = || {
            Ok::<_, Infallible>(Response::builder().status(503).header(headers::REASON, "level").body(Empty).unwrap())
        };
        let mut body = layer.layer(ConstantService(answer)).call(Request::new(Empty)).await.unwrap().into_body();
        assert!(std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.is_none());
        let counts = layer.gate().counts();
        assert_eq!((counts.rejected_inside, counts.failed), (0, 1), "a backend's rejection is its failure here");
    }

    #[tokio::test]
    async fn a_service_that_returns_an_error_has_failed() {
        let layer = slo(ms(20));
        // As a proxy whose backend refuses.
        assert!(layer.layer(ConstantService(|| Err("refused"))).call(Request::new(Empty)).await.is_err());
        let counts = layer.gate().counts();
        assert_eq!((counts.failed, counts.abandoned, counts.in_flight()), (1, 0, 0));
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_a_failure() {
        let layer = slo(ms(20));
        let mut service = layer.layer(PanicService);
        let call = service.call(Request::builder().body(Empty).unwrap());
        assert!(tokio::spawn(call).await.is_err_and(|error| error.is_panic()));
        drop(service.call(Request::builder().body(Empty).unwrap()));
        let counts = layer.gate().counts();
        assert_eq!((counts.failed, counts.abandoned, counts.in_flight()), (1, 1, 0));
    }

    #[tokio::test]
    async fn a_rejection_releases_the_inner_services_reservation() {
        let limited = LimitedService { free: Arc::new(AtomicUsize::new(1)), has_permit: false };
        let guarded = slo(ms(20)).layer(limited.clone());
        let throttled = crate::client::client(ms(20)).layer(limited);
        let (mut rejected, mut ended, mut other) = (guarded.clone(), throttled, guarded);
        let late = || Request::builder().header("leeward", "b=0").body(Empty).unwrap();
        assert!(is_ready(&mut rejected) && !is_ready(&mut other) && !is_ready(&mut ended));
        assert_eq!(rejected.call(late()).await.unwrap().status(), 503);
        assert!(is_ready(&mut ended));
        assert_eq!(ended.call(late()).await.unwrap().status(), 503);
        assert!(is_ready(&mut other));
        assert_eq!(other.call(Request::new(Empty)).await.unwrap().status(), 200);
    }

    /// A body whose data type is not [`bytes::Bytes`].
    struct ForeignBody;

    impl Body for ForeignBody {
        type Data = std::io::Cursor<Vec<u8>>;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Infallible>>> {
            Poll::Ready(None)
        }
    }

    /// Headers, content length and end of a rejected gRPC-Web call.
    fn refused_web<R: Body<Data: 'static> + Unpin>() -> (HeaderMap, Option<usize>, bool) {
        let mut call = HeaderMap::new();
        call.insert("content-type", HeaderValue::from_static("application/grpc-web+proto"));
        let grpc = headers::grpc(&call).unwrap();
        let (head, mut body) = rejection::grpc_response::<R>(&grpc, rejection::GrpcStatus::Exhausted).into_parts();
        let announced = body.size_hint().exact();
        let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = frame else { panic!("a refusal that waits") };
        let length = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()).map(|data| data.remaining());
        assert_eq!(announced, Some(length.unwrap_or(0) as u64));
        (head.headers, length, body.is_end_stream())
    }

    #[test]
    fn a_grpc_web_rejection_is_in_the_body_or_else_in_the_head() {
        let (head, length, has_ended) = refused_web::<Empty>();
        assert_eq!((head.get("grpc-status"), length, has_ended), (None, Some(63), true));
        let (head, length, has_ended) = refused_web::<ForeignBody>();
        assert_eq!((&head["grpc-status"], length, has_ended), (&HeaderValue::from_static("8"), None, true));
        assert_eq!(head["content-type"], "application/grpc-web+proto");
    }

    #[tokio::test]
    async fn only_implemented_methods_have_metric_series() {
        let layer = slo(ms(20_000));
        let mut service = layer.layer(MethodService);
        let invented = (0..400).map(|number| format!("/invented/{number}"));
        for path in invented.chain(["/shop.Cart/Add".into(), "/shop.Cart/Breaks".into()]) {
            let request = Request::builder().uri(path).header("content-type", "application/grpc").body(Empty).unwrap();
            let mut body = service.call(request).await.unwrap().into_body();
            assert!(std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.is_none());
        }
        let snapshot = leeward_gate::Source::snapshot(layer.gate());
        let answers: Vec<_> = snapshot
            .answers
            .iter()
            .map(|of| (of.route.as_str(), of.in_time, of.failed))
            .filter(|of| of.1 + of.2 > 0)
            .collect();
        assert_eq!(answers, [("0", 0, 400), ("/shop.Cart/Add", 1, 0), ("other", 0, 1)]);
    }

    #[tokio::test]
    async fn responses_and_rejections_report_the_load_if_enabled() {
        let mut quiet = slo(ms(20)).layer(answer_service());
        let mut service = slo(ms(20)).report_load().layer(answer_service());
        // Until a rate is known.
        while reported_load(&mut service, "b=20000").await.1.is_none() {
            assert_eq!(reported_load(&mut quiet, "b=20000").await, (200, None));
        }
        for (budget, status) in [("b=20000", 200), ("b=0", 503)] {
            let (found, load) = reported_load(&mut service, budget).await;
            let load = load.unwrap();
            let load = load.to_str().unwrap();
            let pairs = load.strip_prefix("TEXT ").unwrap().split(',').map(|pair| pair.split_once('=').unwrap());
            let metrics: Vec<(&str, f64)> = pairs.map(|(name, value)| (name, value.parse().unwrap())).collect();
            let names: Vec<&str> = metrics.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["rps_fractional", "application_utilization", "named_metrics.leeward_delay"]);
            assert!(metrics[0].1 > 0.0 && metrics[1].1 >= metrics[2].1, "{load}");
            assert_eq!(found, status);
        }
    }
}
