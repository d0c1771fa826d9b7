//! The way of a request: check, queue, backend, answer. Does not contain sockets.

use super::answer::{self, Failure};
use super::exchange::{Answered, Exchange, Unanswered};
use super::grpc_message::FirstMessage;
use super::head::{self, Peer};
use super::request_body::RequestBody;
use super::response_body::{BackendBody, BodyTimes, Lease, ResponseBody, is_failed_call};
use super::tunnel::{self, Upgrade, UpgradeSlot};
use super::websocket;
use crate::access_log::entry::OpenEntry;
use crate::activity::Busy;
use crate::admission::{Admitted, Place, Stream};
use crate::settings::rules::{self, matches_path, place_end};
use crate::settings::{PlaceEnd, Settings};
use crate::worker::{Configuration, Worker};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use leeward_gate::{Outcome, Rejection, RequestInfo};
use leeward_host::sync::lock;
use leeward_tower::UnreadBody;
use leeward_tower::headers::{self, Grpc};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::task::yield_now;
use tokio::time::Instant;

/// Paths of gRPC's health checks
/// (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).
const GRPC_HEALTH: &str = "/grpc.health.v1.Health/";

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
        let configuration = self.configuration();
        let mut entry = open_entry(&configuration, peer, &request);
        let mut response = self.answer(&configuration, peer, upgrade, request, &mut entry).await;
        if let Some(entry) = &mut entry {
            entry.record_answer(&response);
        }
        if self.is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // The only end of a connection that can't meet a request on its way.
            answer::close(response.headers_mut());
        }
        Ok(response.map(|body| body.with_mark(busy).with_entry(entry)))
    }

    /// Answers a request on a stream of HTTP/2; the stream is its own connection if it leaves HTTP.
    pub(crate) async fn handle_stream(
        &self,
        peer: &Peer,
        busy: Busy,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        // What the client has cancelled meanwhile, in the same packets perhaps, ends here.
        yield_now().await;
        let is_tunnel = request.method() == Method::CONNECT;
        let client = is_tunnel.then(|| hyper::upgrade::on(&mut request));
        let upgrade = UpgradeSlot::default();
        let configuration = self.configuration();
        let mut entry = open_entry(&configuration, peer, &request);
        let mut response = self.answer(&configuration, peer, &upgrade, request, &mut entry).await;
        let backend = lock(&upgrade).take();
        if backend.is_none() && is_tunnel && response.status().is_success() {
            // The client would take it for a tunnel.
            response = answer::failed(Failure::Malformed, None);
            if let Some(entry) = &mut entry {
                entry.record_own_answer();
            }
        }
        if let Some(entry) = &mut entry {
            entry.record_answer(&response);
        }
        busy.record_answer();
        if let (Some(client), Some(backend)) = (client, backend) {
            websocket::to_connected(&mut response);
            tokio::spawn(tunnel::pass(client, backend, busy));
        } else {
            response = response.map(|body| body.with_mark(busy));
        }
        Ok(response.map(|body| body.with_entry(entry)))
    }

    async fn answer(
        &self,
        configuration: &Configuration,
        peer: &Peer,
        upgrade: &UpgradeSlot,
        request: Request<Incoming>,
        entry: &mut Option<Box<OpenEntry>>,
    ) -> Response<ResponseBody> {
        let settings = &configuration.settings;
        peer.judge(configuration.version, &settings.trusted);
        let (parts, body) = request.into_parts();
        if let Err(failure) = head::check(&parts) {
            self.admission.record_bad_request();
            return answer::failed(failure, headers::grpc(&parts.headers).as_ref());
        }
        if head::forwards(&parts) == Some(0) {
            // The proxy is whom it is for. It has no method of its own, and reflects no request.
            return match parts.method {
                Method::OPTIONS => answer::last_of_forwards(),
                _ => answer::failed(Failure::NotServed, None),
            };
        }
        if is_exempt(settings, parts.uri.path()) {
            if let Some(entry) = entry {
                entry.record_dispatch(true);
            }
            return self.forward(settings, None, (peer, upgrade), parts, body, entry).await;
        }
        let info = self.describe(settings, peer, &parts);
        if let Some(entry) = entry {
            entry.record_class(info.class.number(), info.tenant.0);
        }
        let now = self.admission.now();
        let place = match self.admission.admit(now, &info, head::size(&parts)) {
            Ok(Admitted::Now(place)) => Ok(place),
            Ok(Admitted::Later(waiting)) => waiting.await,
            Err(rejection) => Err(rejection),
        };
        if let Some(entry) = entry {
            entry.record_dispatch(place.is_ok());
        }
        match place {
            Ok(place) => self.forward(settings, Some(place), (peer, upgrade), parts, body, entry).await,
            Err(rejection) => Box::pin(reject(&rejection, &parts, body)).await,
        }
    }

    /// What the queue must know of a request.
    fn describe(&self, settings: &Settings, peer: &Peer, parts: &Parts) -> RequestInfo {
        let mut info = RequestInfo::default();
        if let Some(source) = &settings.tenant_by {
            info = info.with_tenant(rules::tenant(source, &parts.headers, peer.address));
        }
        info = rules::apply(&settings.rules, parts, peer.address, info);
        if peer.is_trusted() {
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
        settings: &Settings,
        place: Option<Place>,
        (peer, upgrade): (&Peer, &UpgradeSlot),
        mut parts: Parts,
        body: Incoming,
        entry: &mut Option<Box<OpenEntry>>,
    ) -> Response<ResponseBody> {
        let is_http2 = parts.version == Version::HTTP_2;
        let call = headers::grpc(&parts.headers).map(|kind| Box::new(Call::new(kind, &parts.headers)));
        let (protocol, expects) = (head::upgrade(&parts), parts.headers.contains_key(EXPECT));
        let upgrade = protocol.is_some().then_some(upgrade);
        head::to_backend(&mut parts, peer, protocol);
        if settings.sends_proxy_protocol.is_some() && upgrade.is_none() {
            parts.headers.append(CONNECTION, HeaderValue::from_static("close"));
        }
        let timeouts = &settings.timeouts;
        let is_whole = body.is_end_stream();
        if !is_whole && body.size_hint().exact().is_none() {
            // hyper sends a GET or HEAD without its body otherwise.
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let stream = place.as_ref().map(Place::stream).unwrap_or_default();
        let request = Arc::clone(&stream);
        let body = if is_whole {
            RequestBody::empty()
        } else {
            if let Some(place) = &place {
                place.watch();
            }
            RequestBody::new((body, is_http2, expects), &self.admission, Arc::clone(&stream), timeouts.client_idle)
        };
        let can_repeat = is_whole && parts.method.is_idempotent();
        let end = timeouts.total.map(|total| Instant::now() + total);
        let route = peer.route.as_deref();
        let exchange = Exchange { settings, worker: self, route, can_repeat, end, stream };
        let answered = exchange.run(place, Request::from_parts(parts, body)).await;
        match answered.and_then(|answered| check_answer(answered, upgrade.is_some())) {
            Ok(Answered { place, lease, response }) => {
                if let Some(entry) = entry {
                    entry.record_backend(lease.pool.address().to_string(), true);
                }
                self.pass_on(settings, (place, request), lease, response, upgrade, end)
            }
            Err(Unanswered { place, pool, failure }) => {
                if let Some(entry) = entry {
                    entry.record_backend(pool.address().to_string(), false);
                }
                if let Some(place) = place {
                    let (now, outcome) = (
                        self.admission.now(),
                        match failure {
                            Failure::ClientTimeout | Failure::BadRequest | Failure::Expectation => Outcome::Abandoned,
                            _ => Outcome::Failed,
                        },
                    );
                    place.finish(now, outcome);
                }
                match call {
                    Some(call) => answer::failed(call.failure(failure), Some(&call.kind)),
                    None => answer::failed(failure, None),
                }
            }
        }
    }

    /// Turns a backend's answer into the client's.
    fn pass_on(
        &self,
        settings: &Settings,
        (mut place, stream): (Option<Place>, Arc<Stream>),
        lease: Lease,
        mut response: Response<Incoming>,
        upgrade: Option<&UpgradeSlot>,
        end: Option<Instant>,
    ) -> Response<ResponseBody> {
        let now = self.admission.now();
        // hyper would answer in the version of the backend; it knows the client's.
        let version = std::mem::replace(response.version_mut(), Version::HTTP_11);
        let call = headers::grpc(response.headers());
        let has_failed = response.status().is_server_error() || (call.is_some() && is_failed_call(response.headers()));
        let outcome = if has_failed { Outcome::Failed } else { Outcome::Completed };
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(upgrade)) = (response.status(), upgrade) {
            let protocol = response.headers().get(http::header::UPGRADE).cloned();
            *lock(upgrade) = Some(Upgrade::new(hyper::upgrade::on(&mut response), lease, settings.timeouts.idle));
            if let Some(place) = place {
                place.finish(now, outcome);
            }
            head::to_client(response.headers_mut(), version, protocol);
            return response.map(|_| ResponseBody::empty());
        }
        if response.status() == StatusCode::NO_CONTENT {
            // It has no body, and must state no length (RFC 9110 §8.6).
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let route = place.as_ref().map_or(0, Place::route);
        let named = place_end(&settings.rules, route);
        let until = named.unwrap_or(settings.until);
        let mut message = None;
        // A rule that names the last byte is for streams, too: they may be work for the backend.
        if let (Some(place), None, PlaceEnd::LastByte) = (&mut place, named, until) {
            if headers::is_event_stream(response.headers()) {
                // Being open is no work for the backend.
                place.record_answer(now, outcome);
                place.release(now);
            } else if let Some(form) = call {
                message = Some(FirstMessage::new(&form));
                place.stream().record_call(now);
                place.watch();
            }
        }
        head::to_client(response.headers_mut(), version, None);
        if response.body().is_end_stream() {
            stream.record_ended();
            if let Some(place) = place {
                place.finish(now, outcome);
            }
            lease.give_back();
            return response.map(|_| ResponseBody::empty());
        }
        let times = BodyTimes { idle: settings.timeouts.idle, end };
        response.map(|body| {
            let body = BackendBody::new((body, stream), place, lease, until, times, outcome);
            ResponseBody::backend(body.with_message(message))
        })
    }
}

/// A gRPC call.
struct Call {
    kind: Grpc,
    /// When its client gives up.
    deadline: Option<Instant>,
}

impl Call {
    fn new(kind: Grpc, headers: &HeaderMap) -> Self {
        let deadline = headers::read(headers).timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Call { kind, deadline }
    }

    /// The failure as the call has it: a backend also resets a call whose time is up, and its reset
    /// may come before the client gives up.
    fn failure(&self, failure: Failure) -> Failure {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match failure {
            Failure::BadAnswer | Failure::Reset(_) if is_over => Failure::BackendTimeout,
            _ => failure,
        }
    }
}

/// Checks that an answer can be passed on.
fn check_answer(answered: Answered, asks_for_upgrade: bool) -> Result<Answered, Unanswered> {
    let Answered { place, lease, response } = answered;
    // Nobody asked for it, and what follows is not HTTP.
    let is_unasked = response.status() == StatusCode::SWITCHING_PROTOCOLS && !asks_for_upgrade;
    if is_unasked || head::is_coded(response.headers()) {
        return Err(Unanswered { place, pool: lease.pool, failure: Failure::Malformed });
    }
    Ok(Answered { place, lease, response })
}

/// Answers a rejected request; its body is read if it is small, else the connection ends.
async fn reject(rejection: &Rejection, parts: &Parts, body: Incoming) -> Response<ResponseBody> {
    let mut response = answer::rejected(rejection, &parts.headers);
    if parts.version == Version::HTTP_2 {
        // A stream has no next request, and ends with the body that is dropped.
        return response;
    }
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

/// An entry of the access log, if there is one.
fn open_entry(configuration: &Configuration, peer: &Peer, request: &Request<Incoming>) -> Option<Box<OpenEntry>> {
    configuration.log.as_ref().map(|log| Box::new(OpenEntry::begin(log, peer.known_address(), request)))
}

/// Whether requests for this path never wait: the operator's choice, and health checks, so that an
/// overload does not make a balancer take the service away.
fn is_exempt(settings: &Settings, path: &str) -> bool {
    let Settings { exempt, health, .. } = settings;
    exempt.iter().any(|exempt| matches_path(exempt, path))
        || health.as_deref() == Some(path)
        || path.starts_with(GRPC_HEALTH)
}
