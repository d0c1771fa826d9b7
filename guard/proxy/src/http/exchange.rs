//! The way of a request to its backend and of the answer's head back: connections, repetitions,
//! time-outs. Does not contain the queue or bodies.

use super::answer::Failure;
use super::request_body::RequestBody;
use super::response_body::Lease;
use super::{versions, websocket};
use crate::admission::{ClientFailure, HangWatch, Place, Stream};
use crate::backend::http2::{Refusal, is_malformed, is_of_stream, refusal, reset_reason};
use crate::backend::pool::{Connection, Pool, Sender};
use crate::settings::Settings;
use crate::transport::proxy_protocol::Route;
use crate::worker::Worker;
use http::uri::Scheme;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Connections that are tried for a request that no backend has seen.
const ATTEMPTS: usize = 3;
/// Round trips within which the end of a connection has met the request on its way. The backend's
/// end of it takes half a round trip, the request as long; the rest is for this thread's own delay.
const PROMPT: u32 = 4;

/// An answer, and what it holds.
pub(super) struct Answered {
    pub(super) place: Option<Place>,
    pub(super) lease: Lease,
    pub(super) response: Response<Incoming>,
}

/// A request without an answer.
pub(super) struct Unanswered {
    pub(super) place: Option<Place>,
    /// The backend that was tried last.
    pub(super) pool: Arc<Pool>,
    pub(super) failure: Failure,
}

/// Attempts to get an answer to one request.
pub(super) struct Exchange<'a> {
    pub(super) settings: &'a Settings,
    pub(super) worker: &'a Worker,
    /// Addresses of the client's connection, for the PROXY protocol.
    pub(super) route: Option<&'a Route>,
    /// Whether the request may be sent again after a backend has seen it.
    pub(super) can_repeat: bool,
    /// Time at which the answer must be complete.
    pub(super) end: Option<Instant>,
    /// How far the request has come.
    pub(super) stream: Arc<Stream>,
}

impl Exchange<'_> {
    /// Sends a request in the form of HTTP/1.1 until it has an answer.
    pub(super) async fn run(
        &self,
        mut place: Option<Place>,
        mut request: Request<RequestBody>,
    ) -> Result<Answered, Unanswered> {
        let (settings, admission) = (self.settings, &self.worker.admission);
        let mut backend = place.as_ref().map_or_else(|| admission.any_backend(None), Place::backend);
        let (mut has_moved, mut needs_new) = (false, false);
        let (mut attempt, mut unreached) = (0, 0);
        loop {
            let pool = self.worker.pool(backend);
            let connection =
                if needs_new { Box::pin(pool.renew(self.route)).await } else { pool.connect(self.route).await };
            let Connection { mut sender, is_reused } = match connection {
                Ok(connection) => connection,
                Err(error) => {
                    admission.set_up(backend, Err(error.to_string()));
                    unreached += 1;
                    if unreached >= ATTEMPTS.min(settings.backends.len()) {
                        return Err(Unanswered { place, pool, failure: Failure::Unreachable });
                    }
                    backend = self.elsewhere(&mut place, backend);
                    continue;
                }
            };
            attempt += 1;
            let mut copy = self.can_repeat.then(|| copy_head(&request));
            let sent = Instant::now();
            let failed = if sender.is_http2() {
                match Box::pin(self.ask_http2(&mut sender, request, &pool)).await {
                    Ok(response) => Ok(response),
                    Err(Http2Failure::Unanswerable(failure)) => return Err(Unanswered { place, pool, failure }),
                    Err(Http2Failure::Unprocessed(again)) if attempt < ATTEMPTS => {
                        request = again;
                        // A backend that goes on to refuse is full, or goes away.
                        if attempt + 1 == ATTEMPTS && settings.backends.len() > 1 {
                            if let Some(place) = &place {
                                place.record_failure();
                            }
                            backend = self.elsewhere(&mut place, backend);
                        }
                        continue;
                    }
                    Err(Http2Failure::Unprocessed(_)) => {
                        return Err(Unanswered { place, pool, failure: Failure::BadAnswer });
                    }
                    Err(Http2Failure::Error(error)) => Err(error),
                }
            } else {
                self.stream.record_piece(admission.now());
                match self.answer(sender.try_send_request(request)).await {
                    Some(result) => result,
                    None => return Err(Unanswered { place, pool, failure: Failure::BackendTimeout }),
                }
            };
            let mut error = match failed {
                Ok(response) => {
                    self.stream.record_begun();
                    let lease = Lease { pool, sender };
                    return Ok(Answered { place, lease, response });
                }
                Err(error) => error,
            };
            // The connection had closed before the request was written: no backend has seen it.
            if let Some(unsent) = error.take_message() {
                if attempt > ATTEMPTS || (!is_reused && attempt == ATTEMPTS) {
                    return Err(Unanswered { place, pool, failure: Failure::BadAnswer });
                }
                // Many connections that wait for requests may have closed at once.
                needs_new |= attempt == ATTEMPTS;
                request = unsent;
                continue;
            }
            if let Some(failure) = self.stream.client_failure() {
                let failure = match failure {
                    ClientFailure::Idle => Failure::ClientTimeout,
                    ClientFailure::Broken => Failure::BadRequest,
                    ClientFailure::Unmet => Failure::Expectation,
                };
                return Err(Unanswered { place, pool, failure });
            }
            let has_others = settings.backends.len() > 1;
            let may_race = is_reused && !needs_new && !is_of_stream(error.error());
            match copy.take() {
                // A backend that answers garbage has seen the request.
                _ if is_malformed(error.error()) => {
                    return Err(Unanswered { place, pool, failure: Failure::Malformed });
                }
                // It closed the connection, which had waited for a request, while this one came
                // (RFC 9112 §9.3.1). That is no load for the backend. Once: a backend may fail at
                // this very request.
                Some(copy) if may_race && sent.elapsed() <= sender.round_trip() * PROMPT => {
                    admission.record_retry();
                    (request, needs_new) = (copy, true);
                }
                // It may have worked on the request.
                Some(copy) if !has_moved && (has_others || may_race) && admission.try_retry() => {
                    request = copy;
                    (has_moved, needs_new) = (true, true);
                    if has_others {
                        if let Some(place) = &place {
                            place.record_failure();
                        }
                        backend = self.elsewhere(&mut place, backend);
                    }
                }
                _ => {
                    let failure = reset_reason(error.error()).map_or(Failure::BadAnswer, Failure::Reset);
                    return Err(Unanswered { place, pool, failure });
                }
            }
        }
    }

    /// Sends a request in the form of HTTP/2. What is kept of it goes out again if the backend has
    /// not begun with it.
    async fn ask_http2(
        &self,
        sender: &mut Sender,
        mut request: Request<RequestBody>,
        pool: &Pool,
    ) -> Result<Response<Incoming>, Http2Failure> {
        let copy = copy_head(&request);
        let is_tunnel = websocket::to_extended_connect(&mut request);
        if is_tunnel && !sender.has_extended_connect() {
            return Err(Http2Failure::Unanswerable(Failure::NotServed));
        }
        let address = pool.address();
        let scheme = if address.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
        if !versions::to_http2(&mut request, scheme, address.host().unwrap_or("localhost")) {
            return Err(Http2Failure::Unanswerable(Failure::BadRequest));
        }
        let kept = request.body_mut().keep();
        self.stream.record_piece(self.worker.admission.now());
        let result = self.answer(sender.try_send_request(request)).await;
        let mut error = match result.ok_or(Http2Failure::Unanswerable(Failure::BackendTimeout))? {
            Ok(mut response) => {
                if let Some(kept) = &kept {
                    kept.forget();
                }
                if is_tunnel && response.status() == StatusCode::OK {
                    websocket::to_switching(&mut response, copy.headers());
                }
                return Ok(response);
            }
            Err(error) => error,
        };
        let is_unsent = error.take_message().is_some();
        let refusal = refusal(error.error());
        // A stream's failure is not the connection's.
        if refusal == Some(Refusal::Connection) || error.error().is_closed() || error.error().is_canceled() {
            sender.retire();
        }
        if (is_unsent || refusal.is_some()) && kept.as_ref().is_none_or(|kept| kept.is_whole()) {
            return Err(Http2Failure::Unprocessed(match kept {
                Some(kept) => copy.map(|_| RequestBody::again(&kept)),
                None => copy,
            }));
        }
        Err(Http2Failure::Error(error))
    }

    /// Waits for the answer; `None`: it does not come in time. The time begins with the last piece
    /// of the request; a client that sends none has a time-out of its own. A request that hangs
    /// gives its place to others.
    async fn answer<T>(&self, sent: impl Future<Output = T>) -> Option<T> {
        let admission = &self.worker.admission;
        let mut sent = pin!(sent);
        let longest = self.settings.timeouts.first_byte;
        let (mut waited, mut hang) = (Duration::ZERO, HangWatch::new(admission, &self.stream));
        loop {
            let rest = |longest: Duration| Instant::now() + longest.saturating_sub(waited);
            let times = [longest.map(rest), hang.next().map(rest), self.end];
            let Some(limit) = times.into_iter().flatten().min() else { return Some(sent.await) };
            if let Ok(result) = timeout_at(limit, sent.as_mut()).await {
                return Some(result);
            }
            waited = Duration::from_nanos(self.stream.backend_wait(admission.now()).0);
            hang.look(admission, &self.stream, waited);
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

/// Why a request has no answer over HTTP/2.
enum Http2Failure {
    /// It can't have one.
    Unanswerable(Failure),
    /// The backend has not begun with it. This is the same request again.
    Unprocessed(Request<RequestBody>),
    /// The connection or the stream has failed.
    Error(TrySendError<Request<RequestBody>>),
}

/// A copy of a request without a body.
fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}
