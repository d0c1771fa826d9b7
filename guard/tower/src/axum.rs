//! axum with a listener that takes receive stamps, and the layer that reads them. Does not contain
//! anything that other frameworks need.

use crate::body::GuardedBody;
use crate::listener::{Listener, StampedStream};
use crate::service::GuardedService;
use crate::settings::Slo;
pub use crate::stamp::Peer;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::connect_info::Connected;
use axum::response::Response;
use axum::routing::Route;
use axum::serve::IncomingStream;
use http_body::Body as _;
use pin_project_lite::pin_project;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

impl Connected<IncomingStream<'_, Listener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        Peer { address: *stream.remote_addr(), stamp: stream.io().stamp() }
    }
}

impl axum::serve::Listener for Listener {
    type Io = StampedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (StampedStream, SocketAddr) {
        loop {
            match Listener::accept(self).await {
                Ok(accepted) => return accepted,
                // Most likely out of descriptors; connections that end return theirs.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Listener::local_addr(self)
    }
}

/// Serves `app` through `layer` with exact queueing delays.
///
/// Handlers may extract `ConnectInfo<Peer>`. The layer surrounds each route with all of its layers:
/// the cost of a request is known by its route only.
///
/// # Errors
///
/// Errors of the listener.
pub async fn serve(listener: TcpListener, app: Router, layer: Slo) -> io::Result<()> {
    let app = app.layer(RouteLayer(layer));
    axum::serve(Listener::new(listener), app.into_make_service_with_connect_info::<Peer>()).await
}

/// The layer of a route.
#[derive(Clone)]
struct RouteLayer(Slo);

impl Layer<Route> for RouteLayer {
    type Service = RouteService;

    fn layer(&self, inner: Route) -> RouteService {
        RouteService(self.0.layer(inner))
    }
}

/// A guarded route, with responses as axum has them.
#[derive(Clone)]
struct RouteService(GuardedService<Route>);

impl Service<Request> for RouteService {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxBodyFuture<<GuardedService<Route> as Service<Request>>::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        BoxBodyFuture { inner: self.0.call(request) }
    }
}

pin_project! {
    // The response with axum's type of body.
    struct BoxBodyFuture<F> {
        #[pin]
        inner: F,
    }
}

impl<F> Future for BoxBodyFuture<F>
where
    F: Future<Output = Result<http::Response<GuardedBody<Body>>, Infallible>>,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(context).map_ok(|response| response.map(boxed))
    }
}

/// The body in axum's type. Only one that holds something of the layer's is boxed once more.
fn boxed(mut body: GuardedBody<Body>) -> Body {
    match body.take_unguarded() {
        Some(body) => body,
        None if body.is_end_stream() => Body::empty(),
        None => Body::new(body),
    }
}
