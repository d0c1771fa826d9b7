//! Client half: ends requests at the client that the server would probably reject. It marks and
//! limits retries, and writes the remaining time into every request. Does not contain the decision
//! to retry.

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

// Former names, for programs that use them.
#[doc(hidden)]
pub use self::{is_overload as overloaded, mark_retry as repeated};

/// Requests per accepted request that are sent before some end here (Site Reliability Engineering,
/// ch. 21: K = 2).
const REQUESTS_PER_ACCEPT: f64 = 2.0;
/// Time over which requests and accepted requests are counted, or the objective if that is longer;
/// half of it is forgotten at once.
const MEMORY: Duration = Duration::from_secs(2);
/// Requests that are sent within that time whatever the server does, to notice that it has
/// recovered.
const PROBES: f64 = 8.0;
/// Accepted requests in a row after which half of the requests are forgotten. By the rule above, a
/// server that still rejects accepts about every second one.
const ACCEPTED_RUN: u32 = 16;

/// Retries per first attempt (Site Reliability Engineering, ch. 21), and the most retries that
/// accumulate.
const RETRIES: f64 = 0.1;
const RETRIES_MAX: f64 = 10.0;

/// Makes a layer for clients of a server that may reject; `objective` is a request's time from its
/// issue.
///
/// Inside a guarded service, a request also gets at most the remaining time of the served request.
/// It inherits that request's class and attempt number.
pub fn client(objective: Duration) -> Client {
    let throttle = AdaptiveThrottle::new(MEMORY.max(objective));
    let shared = Shared { throttle: Mutex::new(throttle), rejected: Default::default(), malformed: AtomicU64::new(0) };
    Client { objective, shared: Arc::new(shared) }
}

/// Marks a request as a retry after `attempts` earlier attempts, for retry policies.
///
/// The layer sends about one retry per ten requests, and servers reject retries first.
pub fn mark_retry<B>(request: &mut Request<B>, attempts: u8) {
    request.extensions_mut().insert(Attempts(attempts));
}

/// Extension of a request that is a retry.
#[derive(Clone, Copy, Debug)]
struct Attempts(u8);

/// Reason for which a request ended at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalRejection {
    /// The server would probably have rejected the request.
    Throttled,
    /// Retries exceeded a tenth of the first attempts.
    Retries,
    /// The served request has no time left.
    Deadline,
}

/// Requests that ended at the client, and malformed header values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RejectionCounts {
    /// Requests that the server would probably have rejected.
    pub throttled: u64,
    /// Retries beyond a tenth of the first attempts, or sent for a request that was itself a retry.
    pub retries: u64,
    /// Requests sent for a served request without time left.
    pub deadline: u64,
    /// Malformed header values of requests; the layer replaces them.
    pub malformed: u64,
}

/// Whether this response is a rejection for overload, by a server or by this client.
pub fn is_overload<B>(response: &Response<B>) -> bool {
    is_rejection(response.status(), response.headers())
}

fn is_rejection(status: StatusCode, headers: &HeaderMap) -> bool {
    let marked = headers.contains_key(REASON) || headers.contains_key(ENVOY_OVERLOADED);
    let busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    busy || (marked && headers.get(GRPC_STATUS).is_none_or(|status| status != "0"))
        || headers.get(GRPC_STATUS).is_some_and(|status| status == "8")
}

/// The layer. Its services share the statistics of one server.
#[derive(Clone, Debug)]
pub struct Client {
    objective: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    throttle: Mutex<AdaptiveThrottle>,
    /// Ended requests by [`LocalRejection`].
    rejected: [AtomicU64; 3],
    malformed: AtomicU64,
}

impl Client {
    /// Counters of the requests that were not sent.
    pub fn rejections(&self) -> RejectionCounts {
        let [throttled, retries, deadline] = self.shared.rejected.each_ref().map(|count| count.load(Ordering::Relaxed));
        RejectionCounts { throttled, retries, deadline, malformed: self.shared.malformed.load(Ordering::Relaxed) }
    }

    /// Decides about a request, and writes its headers.
    fn prepare<B>(&self, request: &mut Request<B>) -> Result<SentRequest, LocalRejection> {
        let served = scope::current_request();
        let own = request.extensions().get::<Attempts>().map_or(0, |attempts| attempts.0);
        let out = outgoing::OutgoingRequest { objective: self.objective, own, context: served, now: clock::process() };
        let written = outgoing::write(request.headers_mut(), &out);
        self.shared.malformed.fetch_add(written.malformed.into(), Ordering::Relaxed);
        if written.timeout == Some(Duration::ZERO) {
            return Err(LocalRejection::Deadline);
        }
        // A request sent for a retry is not retried here: the original sender retries. Otherwise,
        // attempts would multiply from tier to tier.
        if written.is_retry && served.is_some_and(|served| served.attempt() > 0) {
            return Err(LocalRejection::Retries);
        }
        let now = Instant::now();
        let half = lock(&self.shared.throttle).try_send(now, written.is_retry)?;
        let allowed = written.timeout.map_or(self.objective, |timeout| timeout.min(self.objective));
        Ok(SentRequest { shared: Some(Arc::clone(&self.shared)), half, late_at: now.checked_add(allowed) })
    }
}

impl<S> Layer<S> for Client {
    type Service = ThrottledService<S>;

    fn layer(&self, inner: S) -> ThrottledService<S> {
        ThrottledService { inner, client: self.clone() }
    }
}

/// A request without an answer so far. One that is dropped later than its deadline has failed.
struct SentRequest {
    /// `None` once it is counted.
    shared: Option<Arc<Shared>>,
    /// Half of the memory in which it was sent.
    half: u64,
    late_at: Option<Instant>,
}

impl SentRequest {
    fn count(&mut self, end: SentEnd) {
        if let Some(shared) = self.shared.take() {
            lock(&shared.throttle).record(self.half, end);
        }
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        if self.shared.is_some() {
            let is_late = self.late_at.is_some_and(|late_at| Instant::now() >= late_at);
            self.count(if is_late { SentEnd::Failed } else { SentEnd::Dropped });
        }
    }
}

/// How a sent request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentEnd {
    /// The server has worked on it.
    Accepted,
    /// Rejected, or without an answer when it had to have one.
    Failed,
    /// The caller has given it up before: it says nothing of the server.
    Dropped,
}

/// Halves of the memory for which a request without an answer says nothing of the server: it may be
/// slow. For two more it counts as rejected.
const FRESH: usize = 5;

/// Counts of requests and accepted requests in two halves of the memory.
///
/// A sent request counts when its answer comes, or once twice the memory has passed. Requests that
/// never end, as those on a broken connection, are then forgotten.
#[derive(Debug)]
struct AdaptiveThrottle {
    memory: Duration,
    since: Instant,
    before: (f64, f64),
    now: (f64, f64),
    /// Number of the half of the memory, and requests without an answer that were sent in this one
    /// and in those before.
    half: u64,
    unanswered: [u32; FRESH + 2],
    /// Accepted requests since the last that was not, or since the memory was halved.
    run: u32,
    random: u64,
    /// Retries that may be sent.
    retries: f64,
}

impl AdaptiveThrottle {
    fn new(memory: Duration) -> Self {
        AdaptiveThrottle {
            memory,
            since: Instant::now(),
            before: (0.0, 0.0),
            now: (0.0, 0.0),
            half: 0,
            unanswered: [0; FRESH + 2],
            run: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            retries: 1.0,
        }
    }

    /// Decides whether a request may be sent at `now`. Returns the half of the memory for
    /// [`AdaptiveThrottle::record`]; a request that ends here is counted.
    fn try_send(&mut self, now: Instant, is_retry: bool) -> Result<u64, LocalRejection> {
        if is_retry && self.retries < 1.0 {
            return Err(LocalRejection::Retries);
        }
        self.advance(now);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let chance = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        let overdue: u32 = self.unanswered[FRESH..].iter().sum();
        let (requests, accepted) = (self.before.0 + self.now.0 + f64::from(overdue), self.before.1 + self.now.1);
        // max(0, (requests − K × accepts) / (requests + 1)), ibid., with probes.
        if chance < ((requests - REQUESTS_PER_ACCEPT * accepted - PROBES) / (requests + 1.0)).max(0.0) {
            self.now.0 += 1.0;
            return Err(LocalRejection::Throttled);
        }
        self.retries = if is_retry { self.retries - 1.0 } else { (self.retries + RETRIES).min(RETRIES_MAX) };
        self.unanswered[0] = self.unanswered[0].saturating_add(1);
        Ok(self.half)
    }

    /// Forgets the halves of the memory that have passed.
    fn advance(&mut self, now: Instant) {
        let half = (self.memory / 2).as_nanos().max(1);
        let passed = now.saturating_duration_since(self.since).as_nanos() / half;
        if passed == 0 {
            return;
        }
        self.before = if passed == 1 { self.now } else { (0.0, 0.0) };
        (self.now, self.since) = ((0.0, 0.0), now);
        let shift = usize::try_from(passed).unwrap_or(usize::MAX).min(self.unanswered.len());
        self.unanswered.rotate_right(shift);
        self.unanswered[..shift].fill(0);
        self.half += shift as u64;
    }

    /// Counts the end of a request that was sent in this half of the memory.
    fn record(&mut self, half: u64, end: SentEnd) {
        let unanswered = usize::try_from(self.half - half).ok().and_then(|age| self.unanswered.get_mut(age));
        if let Some(count) = unanswered {
            *count = count.saturating_sub(1);
        }
        match end {
            SentEnd::Accepted => self.record_accept(),
            SentEnd::Failed => (self.now.0, self.run) = (self.now.0 + 1.0, 0),
            SentEnd::Dropped => {}
        }
    }

    fn record_accept(&mut self) {
        self.now = (self.now.0 + 1.0, self.now.1 + 1.0);
        self.run += 1;
        if self.run >= ACCEPTED_RUN {
            self.run = 0;
            for (requests, accepted) in [&mut self.before, &mut self.now] {
                *requests = (*requests / 2.0).max(*accepted);
            }
        }
    }
}

fn lock(throttle: &Mutex<AdaptiveThrottle>) -> std::sync::MutexGuard<'_, AdaptiveThrottle> {
    throttle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A client's service that sends less to a server that rejects.
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
            Ok(sent) => ClientFuture { state: State::Sent { inner: self.inner.call(request), sent } },
            Err(rejection_kind) => {
                self.client.shared.rejected[rejection_kind as usize].fetch_add(1, Ordering::Relaxed);
                if rejection_kind == LocalRejection::Throttled {
                    scope::report_downstream(true);
                }
                release_ready(&mut self.inner);
                ClientFuture { state: State::Rejected { response: Some(reject_locally(rejection_kind, grpc)) } }
            }
        }
    }
}

/// Makes the rejection that the server would have sent.
fn reject_locally<B: Body<Data: 'static>>(
    rejection_kind: LocalRejection,
    grpc: Option<Grpc>,
) -> Response<GuardedBody<B>> {
    let (reason, code) = match rejection_kind {
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
    response.headers_mut().insert(REASON, HeaderValue::from_static(reason));
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
        Sent { #[pin] inner: F, sent: SentRequest },
        // The request was not sent.
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
            StateProjection::Sent { inner, sent } => {
                let answer = ready!(inner.poll(context));
                let is_accepted = answer.as_ref().is_ok_and(|response| !is_overload(response));
                sent.count(if is_accepted { SentEnd::Accepted } else { SentEnd::Failed });
                let response = answer?;
                // The served request is being polled, so the report reaches its scope.
                scope::report_downstream(!is_accepted);
                Poll::Ready(Ok(response.map(GuardedBody::unguarded)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> AdaptiveThrottle {
        AdaptiveThrottle::new(MEMORY)
    }

    #[test]
    fn the_throttle_sends_little_to_a_rejecting_server_and_recovers() {
        let (mut throttle, mut now) = (throttle(), Instant::now());
        let mut sent_of = |requests: u32, end: SentEnd| {
            let mut sent = 0;
            for _ in 0..requests {
                now += Duration::from_millis(1);
                if let Ok(half) = throttle.try_send(now, false) {
                    sent += 1;
                    throttle.record(half, end);
                }
            }
            sent
        };
        let sent = sent_of(4_000, SentEnd::Failed);
        assert!(sent < 100, "{sent} of 4,000");
        sent_of(2_500, SentEnd::Accepted);
        let sent = sent_of(1_000, SentEnd::Accepted);
        assert_eq!(sent, 1_000, "nothing ends here once the server accepts");
    }

    /// Answers never.
    #[derive(Clone)]
    struct HangingService;

    impl Service<Request<()>> for HangingService {
        type Response = Response<String>;
        type Error = std::convert::Infallible;
        type Future = std::future::Pending<Result<Response<String>, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::pending()
        }
    }

    #[test]
    fn requests_in_flight_end_no_others_until_the_server_has_rejected() {
        let (mut throttle, mut now) = (throttle(), Instant::now());
        let burst: Vec<_> = (0..1_000).map(|_| throttle.try_send(now, false).expect("a burst")).collect();
        burst.into_iter().for_each(|half| throttle.record(half, SentEnd::Accepted));
        // A request each 20 ms, answered after 3 s.
        let mut sent = std::collections::VecDeque::new();
        for number in 0..500 {
            now += Duration::from_millis(20);
            sent.push_back(throttle.try_send(now, false).unwrap_or_else(|error| panic!("{number}: {error:?}")));
            if number >= 150 {
                throttle.record(sent.pop_front().unwrap(), SentEnd::Accepted);
            }
        }
        let half = throttle.half;
        (0..1_000).for_each(|_| throttle.record(half, SentEnd::Failed));
        assert!((0..100).any(|_| throttle.try_send(now, false).is_err()));
    }

    /// Nobody gives up the requests to a server that hangs, and they never end. It then answers
    /// others.
    #[test]
    fn a_server_that_hangs_is_spared_and_its_requests_are_forgotten() {
        let (mut throttle, mut now) = (throttle(), Instant::now());
        let mut sent_in = |seconds: u32, is_answered: bool| {
            let mut sent = 0;
            for _ in 0..1_000 * seconds {
                now += Duration::from_millis(1);
                if let Ok(half) = throttle.try_send(now, false) {
                    sent += 1;
                    if is_answered {
                        throttle.record(half, SentEnd::Accepted);
                    }
                }
            }
            sent
        };
        let (first, later) = (sent_in(6, false), sent_in(30, false));
        assert!((4_900..5_300).contains(&first), "{first}: five seconds, and probes");
        assert!(later < 500, "{later} of 30,000");
        sent_in(6, true);
        assert_eq!(sent_in(1, true), 1_000, "it answers again");
    }

    #[test]
    fn a_request_given_up_after_its_objective_has_failed() {
        for (objective, is_failure) in [(3_600_000, false), (1, true)] {
            let layer = client(Duration::from_millis(objective));
            let mut service = layer.layer(HangingService);
            let calls: Vec<_> = (0..200).map(|_| service.call(Request::new(()))).collect();
            assert_eq!(layer.rejections().throttled, 0);
            std::thread::sleep(Duration::from_millis(2));
            drop(calls);
            (0..200).for_each(|_| drop(service.call(Request::new(()))));
            assert_eq!(layer.rejections().throttled > 0, is_failure);
        }
    }

    #[test]
    fn about_half_of_what_is_sent_to_an_overloaded_server_is_accepted() {
        for accepted_of_8 in 1..=3 {
            let (mut throttle, mut now) = (throttle(), Instant::now());
            let (mut sent, mut accepted, mut credit) = (0, 0, 0);
            for number in 0..20_000 {
                now += Duration::from_millis(1);
                // The server can do some of eight that arrive, in bunches.
                credit = (credit + accepted_of_8).min(8 * 12);
                let Ok(half) = throttle.try_send(now, false) else { continue };
                let is_accepted = credit >= 8;
                credit -= if is_accepted { 8 } else { 0 };
                throttle.record(half, if is_accepted { SentEnd::Accepted } else { SentEnd::Failed });
                if number >= 5_000 {
                    (sent, accepted) = (sent + 1, accepted + u32::from(is_accepted));
                }
            }
            let share = f64::from(accepted) / f64::from(sent);
            assert!((0.4..0.62).contains(&share), "{accepted_of_8} of 8: {accepted} of {sent}");
            assert!(accepted > 15_000 / 8 * accepted_of_8 * 9 / 10, "{accepted_of_8} of 8: {accepted}");
        }
    }

    #[test]
    fn retries_are_limited_to_one_request_in_ten() {
        let (mut throttle, mut now, mut sent) = (throttle(), Instant::now(), (0, 0));
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            // Each request is retried three times.
            for attempt in 0..4 {
                match throttle.try_send(now, attempt > 0) {
                    Ok(_) if attempt > 0 => sent.1 += 1,
                    Ok(_) => sent.0 += 1,
                    Err(_) => {}
                }
                throttle.record_accept();
            }
        }
        assert_eq!(sent.0, 10_000);
        assert!((990..=1_010).contains(&sent.1), "{} of 30,000", sent.1);
    }
}
