//! The way of a request: check, queue, backend, answer. Does not contain sockets.

use super::answer::{self, Failure};
use super::head::{self, Peer};
use super::request_body::RequestBody;
use super::response_body::{BackendBody, BodyTimes, Lease, ResponseBody};
use crate::activity::Busy;
use crate::admission::{Admission, Admitted, ClientFailure, Place, Stream};
use crate::backend::pool::{Connection, Pool};
use crate::settings::rules::{self, matches_path};
use crate::settings::{PlaceEnd, Settings};
use crate::transport::proxy_protocol::Route;
use http::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use leeward_gate::{Outcome, Rejection, RequestInfo};
use leeward_host::sync::{Mutex, lock};
use leeward_tower::{UnreadBody, headers};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What the requests of a worker thread share.
pub(crate) struct Worker {
    pub(crate) settings: Arc<Settings>,
    pub(crate) admission: Admission,
    pub(crate) pool: Arc<Pool>,
}

/// A backend that leaves HTTP, if a request of a connection has made it do so.
pub(crate) type UpgradeSlot = Mutex<Option<OnUpgrade>>;

/// Connections that are tried for a request that no backend has seen.
const ATTEMPTS: usize = 3;

impl Worker {
    /// Answers a request; its connection is busy until the last byte.
    ///
    /// A backend that leaves HTTP with it is left in `upgrade`, for who serves the connection.
    pub(crate) async fn handle(
        &self,
        peer: &Peer,
        upgrade: &UpgradeSlot,
        busy: Busy,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let response = self.answer(peer, upgrade, request).await;
        Ok(response.map(|body| body.with_mark(busy)))
    }

    async fn answer(&self, peer: &Peer, upgrade: &UpgradeSlot, request: Request<Incoming>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        if let Err(failure) = head::check(&parts) {
            self.admission.record_bad_request();
            return answer::failed(failure);
        }
        if self.is_exempt(parts.uri.path()) {
            return self.forward(None, (peer, upgrade), parts, body).await;
        }
        let info = self.describe(peer, &parts);
        let now = self.admission.now();
        let place = match self.admission.admit(now, &info, head::size(&parts)) {
            Ok(Admitted::Now(place)) => Ok(place),
            Ok(Admitted::Later(waiting)) => waiting.await,
            Err(rejection) => Err(rejection),
        };
        match place {
            Ok(place) => self.forward(Some(place), (peer, upgrade), parts, body).await,
            Err(rejection) => Box::pin(reject(&rejection, &parts, body)).await,
        }
    }

    /// Whether requests for this path never wait: the operator's choice, and health checks, so that
    /// an overload does not make a balancer take the service away.
    fn is_exempt(&self, path: &str) -> bool {
        let Settings { exempt, health, .. } = &*self.settings;
        exempt.iter().any(|exempt| matches_path(exempt, path)) || health.as_deref() == Some(path)
    }

    /// What the queue must know of a request.
    fn describe(&self, peer: &Peer, parts: &Parts) -> RequestInfo {
        let mut info = RequestInfo::default();
        if let Some(source) = &self.settings.tenant_by {
            info = info.with_tenant(rules::tenant(source, &parts.headers, peer.address));
        }
        info = rules::apply(&self.settings.rules, parts, peer.address, info);
        if peer.is_trusted {
            let stated = headers::read(&parts.headers);
            self.admission.record_malformed(stated.malformed);
            info = info.with_attempt(stated.attempt);
            if let Some(class) = stated.class {
                info = info.with_class(class);
            }
            if let Some(timeout) = stated.timeout {
                info = info.with_timeout(timeout);
            }
        }
        info
    }

    /// Sends a request to its backend and passes the answer on.
    async fn forward(
        &self,
        place: Option<Place>,
        (peer, upgrade): (&Peer, &UpgradeSlot),
        mut parts: Parts,
        body: Incoming,
    ) -> Response<ResponseBody> {
        let protocol = head::upgrade(&parts);
        let upgrade = protocol.is_some().then_some(upgrade);
        head::to_backend(&mut parts, peer, protocol);
        if self.pool.tells_clients() && upgrade.is_none() {
            parts.headers.append(CONNECTION, HeaderValue::from_static("close"));
        }
        let timeouts = &self.settings.timeouts;
        let is_whole = body.is_end_stream();
        if !is_whole && body.size_hint().exact().is_none() {
            // hyper sends a GET or HEAD without its body otherwise.
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let stream = place.as_ref().map(Place::stream).unwrap_or_default();
        let body = if is_whole {
            RequestBody::empty()
        } else {
            if let Some(place) = &place {
                place.watch();
            }
            RequestBody::new(body, &self.admission, Arc::clone(&stream), timeouts.client_idle)
        };
        let can_repeat = is_whole && parts.method.is_idempotent();
        let end = timeouts.total.map(|total| Instant::now() + total);
        let exchange = Exchange { worker: self, route: peer.route.as_deref(), can_repeat, end, stream };
        match exchange.run(place, Request::from_parts(parts, body)).await {
            Ok(Answered { place, lease, response }) => self.pass_on(place, lease, response, upgrade, end),
            Err(Unanswered { place, failure }) => {
                if let Some(place) = place {
                    let (now, outcome) = (
                        self.admission.now(),
                        match failure {
                            Failure::ClientTimeout | Failure::BadRequest => Outcome::Abandoned,
                            _ => Outcome::Failed,
                        },
                    );
                    place.finish(now, outcome);
                }
                answer::failed(failure)
            }
        }
    }

    /// Turns a backend's answer into the client's.
    fn pass_on(
        &self,
        mut place: Option<Place>,
        lease: Lease,
        mut response: Response<Incoming>,
        upgrade: Option<&UpgradeSlot>,
        end: Option<Instant>,
    ) -> Response<ResponseBody> {
        let now = self.admission.now();
        // hyper would answer in the version of the backend; it knows the client's.
        *response.version_mut() = Version::HTTP_11;
        let outcome = if response.status().is_server_error() { Outcome::Failed } else { Outcome::Completed };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = upgrade else {
                // Nobody asked for it, and what follows is not HTTP.
                if let Some(place) = place {
                    place.finish(now, Outcome::Failed);
                }
                return answer::failed(Failure::BadAnswer);
            };
            let protocol = response.headers().get(http::header::UPGRADE).cloned();
            *lock(upgrade) = Some(hyper::upgrade::on(&mut response));
            if let Some(place) = place {
                place.finish(now, outcome);
            }
            head::to_client(response.headers_mut(), protocol);
            return response.map(|_| ResponseBody::empty());
        }
        if headers::is_event_stream(response.headers()) && self.settings.until == PlaceEnd::LastByte {
            // Being open is no work for the backend.
            if let Some(place) = &mut place {
                place.record_answer(now, outcome);
                place.release(now);
            }
        }
        head::to_client(response.headers_mut(), None);
        if response.body().is_end_stream() {
            if let Some(place) = place {
                place.finish(now, outcome);
            }
            lease.give_back();
            return response.map(|_| ResponseBody::empty());
        }
        let times = BodyTimes { idle: self.settings.timeouts.idle, end };
        let until = self.settings.until;
        response.map(|body| ResponseBody::backend(BackendBody::new(body, place, lease, until, times, outcome)))
    }
}

/// An answer, and what it holds.
struct Answered {
    place: Option<Place>,
    lease: Lease,
    response: Response<Incoming>,
}

/// A request without an answer.
struct Unanswered {
    place: Option<Place>,
    failure: Failure,
}

/// Attempts to get an answer to one request.
struct Exchange<'a> {
    worker: &'a Worker,
    /// Addresses of the client's connection, for the PROXY protocol.
    route: Option<&'a Route>,
    /// Whether the request may be sent again after a backend has seen it.
    can_repeat: bool,
    /// Time at which the answer must be complete.
    end: Option<Instant>,
    /// How far the request has come.
    stream: Arc<Stream>,
}

impl Exchange<'_> {
    async fn run(&self, mut place: Option<Place>, mut request: Request<RequestBody>) -> Result<Answered, Unanswered> {
        let Worker { settings, admission, pool } = self.worker;
        let mut backend = place.as_ref().map_or_else(|| admission.any_backend(None), Place::backend);
        let (mut has_moved, mut needs_new) = (false, false);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let connection = if needs_new {
                Box::pin(pool.open(backend, self.route)).await
            } else {
                pool.connect(backend, self.route).await
            };
            let Ok(Connection { mut sender, is_reused }) = connection else {
                if settings.backends.len() > 1 {
                    admission.set_up(backend, false);
                }
                if attempt >= ATTEMPTS.min(settings.backends.len()) {
                    return Err(Unanswered { place, failure: Failure::Unreachable });
                }
                backend = self.elsewhere(&mut place, backend);
                continue;
            };
            let copy = self.can_repeat.then(|| copy_head(&request));
            self.stream.record_piece(admission.now());
            let Some(result) = self.answer(sender.try_send_request(request)).await else {
                return Err(Unanswered { place, failure: Failure::BackendTimeout });
            };
            let mut error = match result {
                Ok(response) => {
                    let lease = Lease { pool: Arc::clone(pool), backend, sender };
                    return Ok(Answered { place, lease, response });
                }
                Err(error) => error,
            };
            // The connection had closed before the request was written: no backend has seen it.
            if let Some(unsent) = error.take_message() {
                if !is_reused && attempt >= ATTEMPTS {
                    return Err(Unanswered { place, failure: Failure::BadAnswer });
                }
                request = unsent;
                continue;
            }
            if let Some(failure) = self.stream.client_failure() {
                let failure = match failure {
                    ClientFailure::Idle => Failure::ClientTimeout,
                    ClientFailure::Broken => Failure::BadRequest,
                };
                return Err(Unanswered { place, failure });
            }
            match copy {
                // A backend that answers garbage has seen the request.
                _ if error.error().is_parse() => return Err(Unanswered { place, failure: Failure::BadAnswer }),
                // It closed the connection, which had waited for a request, while this one came
                // (RFC 9112 §9.3.1). That is no load that the backend has not had.
                Some(copy) if is_reused && !has_moved => (request, needs_new) = (copy, true),
                Some(copy) if !has_moved && settings.backends.len() > 1 && admission.try_retry() => {
                    request = copy;
                    (has_moved, needs_new) = (true, true);
                    backend = self.elsewhere(&mut place, backend);
                }
                _ => return Err(Unanswered { place, failure: Failure::BadAnswer }),
            }
        }
    }

    /// Waits for the answer; `None`: it does not come in time. The time begins with the last piece
    /// of the request; a client that sends none has a time-out of its own.
    async fn answer<T>(&self, sent: impl Future<Output = T>) -> Option<T> {
        let admission = &self.worker.admission;
        let mut sent = pin!(sent);
        let longest = self.worker.settings.timeouts.first_byte;
        let mut waited = Duration::ZERO;
        loop {
            let first_byte = longest.map(|longest| Instant::now() + longest.saturating_sub(waited));
            let Some(limit) = [first_byte, self.end].into_iter().flatten().min() else { return Some(sent.await) };
            if let Ok(result) = timeout_at(limit, sent.as_mut()).await {
                return Some(result);
            }
            waited = Duration::from_nanos(self.stream.backend_wait(admission.now()).0);
            if self.end.is_some_and(|end| Instant::now() >= end) || longest.is_some_and(|longest| waited >= longest) {
                return None;
            }
        }
    }

    /// Moves the request to another backend.
    fn elsewhere(&self, place: &mut Option<Place>, backend: usize) -> usize {
        let other = self.worker.admission.any_backend(Some(backend));
        if let Some(place) = place {
            place.move_to(other);
        }
        other
    }
}

/// A copy of a request without a body.
fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Answers a rejected request; its body is read if it is small, else the connection ends.
async fn reject(rejection: &Rejection, parts: &Parts, body: Incoming) -> Response<ResponseBody> {
    let mut response = answer::rejected(rejection, &parts.headers);
    let is_read = match UnreadBody::of(parts, body) {
        UnreadBody::None => true,
        UnreadBody::Close => false,
        UnreadBody::Drain(drain) => drain.await,
    };
    if !is_read {
        answer::close(response.headers_mut());
    }
    response
}
