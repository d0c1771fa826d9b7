//! A client's half: requests that a server would refuse end at the client, with the chance at which the server refuses, and
//! every request says how much time it has left. Never here: retries.

use crate::body::GuardedBody;
use crate::future::ResponseFuture;
use crate::headers::{ENVOY_OVERLOADED, GRPC_STATUS, LEEWARD, REASON};
use crate::settings::Until;
use http::header::HeaderValue;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tower_layer::Layer;
use tower_service::Service;

/// Requests that are tolerated per accepted request before some end here (Site Reliability Engineering, ch. 21: K = 2).
const TOLERATED: f64 = 2.0;
/// Time over which requests and accepted ones are counted: a half of it is forgotten at once.
const MEMORY: Duration = Duration::from_secs(2);

/// A layer for clients of a server that may refuse; `objective` is the time that a request has from its issue.
pub fn client(objective: Duration) -> Client {
    Client { objective, account: Arc::default() }
}

/// Whether this response is a server's, or this client's own, refusal for overload.
pub fn overloaded<B>(response: &Response<B>) -> bool {
    is_refusal(response.status(), response.headers())
}

fn is_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let marked = headers.contains_key(REASON) || headers.contains_key(ENVOY_OVERLOADED);
    let busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    busy || (marked && headers.get(GRPC_STATUS).is_none_or(|status| status != "0"))
        || headers.get(GRPC_STATUS).is_some_and(|status| status == "8")
}

/// The layer. Its services share one account of one server.
#[derive(Clone, Debug)]
pub struct Client {
    objective: Duration,
    account: Arc<Mutex<Account>>,
}

impl<S> Layer<S> for Client {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        Throttled { inner, client: self.clone() }
    }
}

/// Requests and accepted ones of two halves of the memory.
#[derive(Debug)]
struct Account {
    since: Instant,
    before: (f64, f64),
    now: (f64, f64),
    random: u64,
}

impl Default for Account {
    fn default() -> Self {
        Account { since: Instant::now(), before: (0.0, 0.0), now: (0.0, 0.0), random: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl Account {
    /// Whether a request may leave at `now`. Counts it.
    fn leaves(&mut self, now: Instant) -> bool {
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
        chance >= ((requests - TOLERATED * accepted) / (requests + 1.0)).max(0.0)
    }

    fn accepted(&mut self) {
        self.now.1 += 1.0;
    }
}

fn lock(account: &Mutex<Account>) -> std::sync::MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A client's service that sends less to a server that refuses.
#[derive(Clone, Debug)]
pub struct Throttled<S> {
    inner: S,
    client: Client,
}

impl<S, B, R> Service<Request<B>> for Throttled<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<GuardedBody<R>>;
    type Error = S::Error;
    type Future = ClientFuture<S::Future, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let account = Arc::clone(&self.client.account);
        if !lock(&account).leaves(Instant::now()) {
            let grpc = crate::headers::is_grpc(request.headers());
            let inner = ResponseFuture::refused(ended_here(grpc));
            return ClientFuture { inner, account: None };
        }
        if !request.headers().contains_key(LEEWARD) {
            let budget = self.client.objective.as_micros().min(999_999_999_999);
            if let Ok(value) = HeaderValue::from_str(&format!("b={budget}")) {
                request.headers_mut().insert(LEEWARD, value);
            }
        }
        let inner = ResponseFuture::served(self.inner.call(request), None, Until::Body, None);
        ClientFuture { inner, account: Some(account) }
    }
}

/// The refusal that the server would have sent.
fn ended_here<B: Body>(grpc: bool) -> Response<GuardedBody<B>> {
    let mut response = Response::new(GuardedBody::refused());
    if grpc {
        response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static("8"));
    } else {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.headers_mut().insert(REASON, HeaderValue::from_static("client"));
    response
}

pin_project! {
    /// Response to a client's request.
    pub struct ClientFuture<F, B: Body> {
        #[pin]
        inner: ResponseFuture<F, B>,
        // `None` where the request never left.
        account: Option<Arc<Mutex<Account>>>,
    }
}

impl<F, B, E> Future for ClientFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<GuardedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        if let (Ok(response), Some(account)) = (&result, this.account.take())
            && !overloaded(response)
        {
            lock(&account).accepted();
        }
        Poll::Ready(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_a_server_that_refuses_all_sends_little_and_comes_back() {
        let (mut account, mut now) = (Account::default(), Instant::now());
        let step = |account: &mut Account, now: &mut Instant| {
            *now += Duration::from_millis(1);
            account.leaves(*now)
        };
        let sent = (0..4_000).filter(|_| step(&mut account, &mut now)).count();
        assert!(sent < 100, "{sent} of 4,000");
        let served = |account: &mut Account, now: &mut Instant| {
            let leaves = step(account, now);
            if leaves {
                account.accepted();
            }
            leaves
        };
        let _ = (0..8_000).filter(|_| served(&mut account, &mut now)).count();
        let sent = (0..1_000).filter(|_| served(&mut account, &mut now)).count();
        assert_eq!(sent, 1_000, "nothing ends here once the server accepts");
    }
}
