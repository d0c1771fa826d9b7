//! A front service: works for a request, and calls a backend for the rest of the response.
//!
//! Does not contain protection.

use crate::args::Args;
use crate::work::Work;
use anyhow::Result;
use axum::body::Bytes;
use axum::http::{Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use leeward_tower::client;
use leeward_tower::headers::ENVOY_OVERLOADED;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tower::{Layer, ServiceExt};

type Http = Client<HttpConnector, Full<Bytes>>;

/// The service, with counters of its own work.
pub(crate) struct Front {
    work: Work,
    backend: Uri,
    http: Http,
    /// The client layer, if the front passes on deadlines and counts rejections.
    client_layer: Option<client::Client>,
    worked: AtomicU64,
    wasted: AtomicU64,
}

/// Outcome of a call to the backend.
enum Answer {
    Result,
    /// Rejected by the backend, or by the client layer in its place.
    Rejected,
    Failure,
}

impl Front {
    /// A front of the service at `backend`.
    pub(crate) fn new(args: &Args, backend: SocketAddr) -> Result<Arc<Self>> {
        Ok(Arc::new(Front {
            work: Work::of(Duration::from_micros(args.work)),
            backend: format!("http://{backend}/").parse()?,
            http: Client::builder(TokioExecutor::new()).build_http(),
            client_layer: args.passes.then(|| client::client(Duration::from_millis(args.slo))),
            worked: AtomicU64::new(0),
            wasted: AtomicU64::new(0),
        }))
    }

    /// Router with the only route.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let front = Arc::clone(self);
        let handler = move || {
            let front = Arc::clone(&front);
            async move { front.serve().await }
        };
        Router::new().route("/", get(handler))
    }

    /// Requests that the front worked for, and those of them that were then rejected downstream.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.worked.load(Ordering::Relaxed), self.wasted.load(Ordering::Relaxed))
    }

    async fn serve(&self) -> Response {
        // The front works before the call, like services that look up sessions and parse bodies:
        // this work is wasted if the backend rejects.
        self.work.run();
        self.worked.fetch_add(1, Ordering::Relaxed);
        match self.call_backend().await {
            Answer::Result => "ok".into_response(),
            Answer::Rejected => {
                self.wasted.fetch_add(1, Ordering::Relaxed);
                (StatusCode::SERVICE_UNAVAILABLE, [(ENVOY_OVERLOADED, "true")]).into_response()
            }
            Answer::Failure => StatusCode::BAD_GATEWAY.into_response(),
        }
    }

    async fn call_backend(&self) -> Answer {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.backend.clone();
        match &self.client_layer {
            Some(layer) => read(layer.layer(self.http.clone()).oneshot(request).await).await,
            None => read(self.http.clone().oneshot(request).await).await,
        }
    }
}

/// Reads a response to its end, so that its connection can be reused.
async fn read<B: http_body::Body, E>(response: Result<Response<B>, E>) -> Answer {
    let Ok(response) = response else { return Answer::Failure };
    let (refused, is_result) = (client::is_overload(&response), response.status() == StatusCode::OK);
    match response.into_body().collect().await {
        Ok(_) if refused => Answer::Rejected,
        Ok(_) if is_result => Answer::Result,
        _ => Answer::Failure,
    }
}
