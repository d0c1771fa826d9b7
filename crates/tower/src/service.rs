//! The guarded service: decides in `call`, when there is a request, and holds nothing in `poll_ready`. Never here:
//! sockets.

use crate::body::GuardedBody;
use crate::drain::Rest;
use crate::future::{Admitted, ResponseFuture};
use crate::refusal;
use crate::scope::{Scope, Serving};
use crate::settings::Slo;
use crate::stamp::Stamp;
use crate::{headers, probe};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use leeward_control::units::{Nanos, Time};
use leeward_edge::{Arriving, Gate};
use leeward_runtime::clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a gate.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    // Frameworks clone a service for every request: one counter, and no settings.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Slo,
    gate: Gate,
}

impl<S> Guarded<S> {
    pub(crate) fn new(inner: S, settings: Slo, gate: Gate) -> Self {
        Guarded { inner, shared: Arc::new(Shared { settings, gate }) }
    }

    /// The gate, with its counters and decisions.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// All that is known of a request; `None`: it passes by the gate.
    fn arriving(&self, request: &Parts, reading: Time) -> Option<Arriving> {
        let path = request.uri.path();
        if path.starts_with("/grpc.health.v1.Health/") {
            return None;
        }
        let said = headers::read(&request.headers);
        if said.malformed > 0 {
            (0..said.malformed).for_each(|_| self.shared.gate.note_malformed());
        }
        let mut arriving = Arriving::default().with_attempt(said.attempt).with_route(route(request));
        if let Some(class) = said.class {
            arriving = arriving.with_class(class);
        }
        if let Some(left) = said.left {
            arriving = arriving.with_left(left);
        }
        match age(request, reading) {
            Some(waited) => arriving = arriving.with_waited(waited),
            None => probe::measure(&self.shared.gate),
        }
        if self.shared.settings.is_plain() {
            return Some(arriving);
        }
        // The application's functions may panic: a request of which nothing more is known is still a request.
        let described = catch_unwind(AssertUnwindSafe(|| {
            if self.shared.settings.exempt.as_ref().is_some_and(|exempt| exempt(request)) {
                return None;
            }
            Some(self.shared.settings.describe.as_ref().map_or(arriving, |describe| describe(request, arriving)))
        }));
        described.unwrap_or_else(|_| {
            self.shared.gate.note_malformed();
            Some(arriving)
        })
    }
}

/// How long a request had waited when it came here, if its connection has stamps.
fn age(request: &Parts, reading: Time) -> Option<std::time::Duration> {
    #[cfg(feature = "axum")]
    if let Some(info) = request.extensions.get::<::axum::extract::ConnectInfo<crate::axum::Peer>>() {
        return info.0.stamp.age_at(reading);
    }
    request.extensions.get::<Stamp>()?.age_at(reading)
}

/// Requests of one route have one number. A path is no route where it may hold identifiers: only a router's pattern and
/// gRPC's methods are.
fn route(request: &Parts) -> u8 {
    #[cfg(feature = "axum")]
    if let Some(path) = request.extensions.get::<::axum::extract::MatchedPath>() {
        return hash(path.as_str().as_bytes()) as u8;
    }
    if headers::is_grpc(&request.headers) { hash(request.uri.path().as_bytes()) as u8 } else { 0 }
}

/// FNV-1a, the upper half folded in: the same name is the same number in every process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^ hash >> 32
}

impl<S, B, R> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
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
        let (shared, reading) = (&*self.shared, clock::process());
        let until = shared.settings.until;
        let Some(arriving) = self.arriving(&parts, reading) else {
            return ResponseFuture::served(self.inner.call(Request::from_parts(parts, body)), None, until);
        };
        let ticket = match shared.gate.arrive_at(shared.gate.at(reading), &arriving) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                let grpc = headers::is_grpc(&parts.headers);
                let response = refusal::response(&refusal, grpc, GuardedBody::refused());
                return ResponseFuture::refused(response, Rest::of(&parts, body));
            }
        };
        let mut scope = Scope::new(Serving::new(&arriving, reading), &ticket);
        // Some services begin their work here.
        let inner = scope.enter(|| self.inner.call(Request::from_parts(parts, body)));
        ResponseFuture::served(inner, Some(Admitted { ticket, scope, worked: Nanos::ZERO }), until)
    }
}
