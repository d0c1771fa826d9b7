//! A client's half: requests that a server would refuse end at the client, with the chance at which the server refuses;
//! repeated requests are marked, and few; every request says how much time it has left. Never here: when a request is
//! sent again.

use crate::body::GuardedBody;
use crate::headers::{ENVOY_OVERLOADED, GRPC_STATUS, Grpc, REASON};
use crate::rejection::{self, GrpcStatus};
use crate::service::release_ready;
use crate::{outgoing, scope};
use http::header::HeaderValue;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use leeward_runtime::clock;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tower_layer::Layer;
use tower_service::Service;

/// Requests that are tolerated per accepted request before some end here (Site Reliability Engineering, ch. 21: K = 2).
const REQUESTS_PER_ACCEPT: f64 = 2.0;
/// Time over which requests and accepted ones are counted: a half of it is forgotten at once.
const MEMORY: Duration = Duration::from_secs(2);

/// Repeated requests that are sent per first one (Site Reliability Engineering, ch. 21), and how many are saved up at
/// most.
const RETRIES: f64 = 0.1;
const RETRIES_MAX: f64 = 10.0;

/// A layer for clients of a server that may refuse; `objective` is the time that a request has from its issue. Inside
/// of a guarded service it is also at most what the request being served has left, and the request is as important and
/// as often repeated as that one.
pub fn client(objective: Duration) -> Client {
    Client { objective, shared: Arc::default() }
}

/// Marks a request as sent before, `attempts` times: for policies that send requests again. The layer lets one in ten
/// pass, and servers refuse them first.
pub fn mark_retry<B>(request: &mut Request<B>, attempts: u8) {
    request.extensions_mut().insert(Attempts(attempts));
}

/// Extension of a request that was sent before.
#[derive(Clone, Copy, Debug)]
struct Attempts(u8);

/// Why a request ended at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalRejection {
    /// The server would most likely have refused it.
    Throttled,
    /// More were repeated than a tenth.
    Retries,
    /// The request that it was a part of has no time left.
    Deadline,
}

/// Requests that ended at the client, and header values that it could not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RejectionCounts {
    /// The server would most likely have refused them.
    pub throttled: u64,
    /// Repeated beyond a tenth of the first ones, or on behalf of a request that was itself repeated.
    pub retries: u64,
    /// Parts of a request that had no time left.
    pub deadline: u64,
    /// Values of headers on requests that could not be read: they are replaced.
    pub malformed: u64,
}

/// Whether this response is a server's, or this client's own, refusal for overload.
pub fn is_overload<B>(response: &Response<B>) -> bool {
    is_rejection(response.status(), response.headers())
}

fn is_rejection(status: StatusCode, headers: &HeaderMap) -> bool {
    let marked = headers.contains_key(REASON) || headers.contains_key(ENVOY_OVERLOADED);
    let busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    busy || (marked && headers.get(GRPC_STATUS).is_none_or(|status| status != "0"))
        || headers.get(GRPC_STATUS).is_some_and(|status| status == "8")
}

/// The layer. Its services share one account of one server.
#[derive(Clone, Debug)]
pub struct Client {
    objective: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    throttle: Mutex<AdaptiveThrottle>,
    /// By [`Ended`].
    rejected: [AtomicU64; 3],
    malformed: AtomicU64,
}

impl Client {
    /// Fates of the requests that did not leave.
    pub fn rejections(&self) -> RejectionCounts {
        let [throttled, retries, deadline] = self.shared.rejected.each_ref().map(|count| count.load(Ordering::Relaxed));
        RejectionCounts { throttled, retries, deadline, malformed: self.shared.malformed.load(Ordering::Relaxed) }
    }

    /// Decides on a request, and writes what it says of itself.
    fn prepare<B>(&self, request: &mut Request<B>) -> Result<(), LocalRejection> {
        let serving = scope::current_request();
        let own = request.extensions().get::<Attempts>().map_or(0, |attempts| attempts.0);
        let out = outgoing::OutgoingRequest { objective: self.objective, own, context: serving, now: clock::process() };
        let passed = outgoing::write(request.headers_mut(), &out);
        self.shared.malformed.fetch_add(passed.malformed.into(), Ordering::Relaxed);
        if passed.timeout == Some(Duration::ZERO) {
            return Err(LocalRejection::Deadline);
        }
        // Parts of a request that was itself repeated are not: whoever sent it will, and attempts would multiply from
        // tier to tier.
        if passed.is_retry && serving.is_some_and(|serving| serving.attempt() > 0) {
            return Err(LocalRejection::Retries);
        }
        lock(&self.shared.throttle).try_send(Instant::now(), passed.is_retry)
    }
}

impl<S> Layer<S> for Client {
    type Service = ThrottledService<S>;

    fn layer(&self, inner: S) -> ThrottledService<S> {
        ThrottledService { inner, client: self.clone() }
    }
}

/// Requests and accepted ones of two halves of the memory.
#[derive(Debug)]
struct AdaptiveThrottle {
    since: Instant,
    before: (f64, f64),
    now: (f64, f64),
    random: u64,
    /// Repeated requests that may leave.
    retries: f64,
}

impl Default for AdaptiveThrottle {
    fn default() -> Self {
        AdaptiveThrottle {
            since: Instant::now(),
            before: (0.0, 0.0),
            now: (0.0, 0.0),
            random: 0x9E37_79B9_7F4A_7C15,
            retries: 1.0,
        }
    }
}

impl AdaptiveThrottle {
    /// Whether a request, `repeated` or not, may leave at `now`. Counts it.
    fn try_send(&mut self, now: Instant, repeated: bool) -> Result<(), LocalRejection> {
        if repeated && self.retries < 1.0 {
            return Err(LocalRejection::Retries);
        }
        let passed = now.saturating_duration_since(self.since);
        if passed >= MEMORY / 2 {
            self.before = if passed >= MEMORY { (0.0, 0.0) } else { self.now };
            (self.now, self.since) = ((0.0, 0.0), now);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let chance = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        let (requests, accepted) = (self.before.0 + self.now.0, self.before.1 + self.now.1);
        self.now.0 += 1.0;
        // max(0, (requests − K × accepts) / (requests + 1)), ibid.
        if chance < ((requests - REQUESTS_PER_ACCEPT * accepted) / (requests + 1.0)).max(0.0) {
            return Err(LocalRejection::Throttled);
        }
        self.retries = if repeated { self.retries - 1.0 } else { (self.retries + RETRIES).min(RETRIES_MAX) };
        Ok(())
    }

    fn record_accept(&mut self) {
        self.now.1 += 1.0;
    }
}

fn lock(account: &Mutex<AdaptiveThrottle>) -> std::sync::MutexGuard<'_, AdaptiveThrottle> {
    account.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A client's service that sends less to a server that refuses.
#[derive(Clone, Debug)]
pub struct ThrottledService<S> {
    inner: S,
    client: Client,
}

impl<S, B, R> Service<Request<B>> for ThrottledService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: 'static>,
{
    type Response = Response<GuardedBody<R>>;
    type Error = S::Error;
    type Future = ClientFuture<S::Future, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let grpc = crate::headers::grpc(request.headers());
        match self.client.prepare(&mut request) {
            Ok(()) => {
                let shared = Some(Arc::clone(&self.client.shared));
                ClientFuture { state: State::Sent { inner: self.inner.call(request), shared } }
            }
            Err(ended) => {
                self.client.shared.rejected[ended as usize].fetch_add(1, Ordering::Relaxed);
                if ended == LocalRejection::Throttled {
                    scope::report_downstream(true);
                }
                release_ready(&mut self.inner);
                ClientFuture { state: State::Rejected { response: Some(reject_locally(ended, grpc)) } }
            }
        }
    }
}

/// The refusal that the server would have sent.
fn reject_locally<B: Body<Data: 'static>>(ended: LocalRejection, grpc: Option<Grpc>) -> Response<GuardedBody<B>> {
    let (word, code) = match ended {
        LocalRejection::Throttled => ("client", GrpcStatus::Exhausted),
        LocalRejection::Retries => ("retries", GrpcStatus::Exhausted),
        LocalRejection::Deadline => ("deadline", GrpcStatus::Deadline),
    };
    let mut response = match grpc {
        Some(grpc) => rejection::grpc_response(&grpc, code),
        None => {
            let mut response = Response::new(GuardedBody::rejected());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    };
    response.headers_mut().insert(REASON, HeaderValue::from_static(word));
    response
}

pin_project! {
    /// Response to a client's request.
    pub struct ClientFuture<F, B: Body> {
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B: Body> {
        Sent { #[pin] inner: F, shared: Option<Arc<Shared>> },
        // The request never left.
        Rejected { response: Option<Response<GuardedBody<B>>> },
    }
}

impl<F, B, E> Future for ClientFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<GuardedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Rejected { response } => {
                Poll::Ready(Ok(response.take().expect("polled after it was ready")))
            }
            StateProjection::Sent { inner, shared } => {
                let response = ready!(inner.poll(context))?;
                let refused = is_overload(&response);
                // The request that this one is a part of is being polled.
                scope::report_downstream(refused);
                if let Some(shared) = shared.take()
                    && !refused
                {
                    lock(&shared.throttle).record_accept();
                }
                Poll::Ready(Ok(response.map(GuardedBody::unguarded)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_a_server_that_refuses_all_sends_little_and_comes_back() {
        let (mut account, mut now) = (AdaptiveThrottle::default(), Instant::now());
        let step = |account: &mut AdaptiveThrottle, now: &mut Instant| {
            *now += Duration::from_millis(1);
            account.try_send(*now, false).is_ok()
        };
        let sent = (0..4_000).filter(|_| step(&mut account, &mut now)).count();
        assert!(sent < 100, "{sent} of 4,000");
        let served = |account: &mut AdaptiveThrottle, now: &mut Instant| {
            let leaves = step(account, now);
            if leaves {
                account.record_accept();
            }
            leaves
        };
        let _ = (0..8_000).filter(|_| served(&mut account, &mut now)).count();
        let sent = (0..1_000).filter(|_| served(&mut account, &mut now)).count();
        assert_eq!(sent, 1_000, "nothing ends here once the server accepts");
    }
    #[test]
    fn one_request_in_ten_is_repeated() {
        let (mut account, mut now, mut sent) = (AdaptiveThrottle::default(), Instant::now(), (0, 0));
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            // Each request is sent three times more.
            for attempt in 0..4 {
                match account.try_send(now, attempt > 0) {
                    Ok(()) if attempt > 0 => sent.1 += 1,
                    Ok(()) => sent.0 += 1,
                    Err(_) => {}
                }
                account.record_accept();
            }
        }
        assert_eq!(sent.0, 10_000);
        assert!((990..=1_010).contains(&sent.1), "{} of 30,000", sent.1);
    }
}
