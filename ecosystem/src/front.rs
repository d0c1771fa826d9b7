//! A service of the tier before: works for a request, and asks the service behind for the rest of its answer. Never here: protection.

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

/// The service, with what it knows of its own work.
pub(crate) struct Front {
    work: Work,
    behind: Uri,
    http: Http,
    /// The client layer, where deadlines and refusals are to be passed on.
    passing: Option<client::Client>,
    worked: AtomicU64,
    wasted: AtomicU64,
}

/// Answer of the service behind.
enum Answer {
    Result,
    /// A refusal by the service behind, or by the client layer in its place.
    Refusal,
    Failure,
}

impl Front {
    /// In front of the service at `behind`.
    pub(crate) fn new(args: &Args, behind: SocketAddr) -> Result<Arc<Self>> {
        Ok(Arc::new(Front {
            work: Work::of(Duration::from_micros(args.work)),
            behind: format!("http://{behind}/").parse()?,
            http: Client::builder(TokioExecutor::new()).build_http(),
            passing: args.passes.then(|| client::client(Duration::from_millis(args.slo))),
            worked: AtomicU64::new(0),
            wasted: AtomicU64::new(0),
        }))
    }

    /// Its one route.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let front = Arc::clone(self);
        let handler = move || {
            let front = Arc::clone(&front);
            async move { front.serve().await }
        };
        Router::new().route("/", get(handler))
    }

    /// Requests that it has worked for, and those of them that the service behind then refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.worked.load(Ordering::Relaxed), self.wasted.load(Ordering::Relaxed))
    }

    async fn serve(&self) -> Response {
        // Before it asks: sessions are looked up and bodies parsed for a request that comes to nothing, too.
        self.work.run();
        self.worked.fetch_add(1, Ordering::Relaxed);
        match self.ask().await {
            Answer::Result => "ok".into_response(),
            Answer::Refusal => {
                self.wasted.fetch_add(1, Ordering::Relaxed);
                (StatusCode::SERVICE_UNAVAILABLE, [(ENVOY_OVERLOADED, "true")]).into_response()
            }
            Answer::Failure => StatusCode::BAD_GATEWAY.into_response(),
        }
    }

    async fn ask(&self) -> Answer {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.behind.clone();
        match &self.passing {
            Some(layer) => read(layer.layer(self.http.clone()).oneshot(request).await).await,
            None => read(self.http.clone().oneshot(request).await).await,
        }
    }
}

/// Reads an answer to its end, so that its connection can be used again.
async fn read<B: http_body::Body, E>(response: Result<Response<B>, E>) -> Answer {
    let Ok(response) = response else { return Answer::Failure };
    let (refused, is_result) = (client::is_overload(&response), response.status() == StatusCode::OK);
    match response.into_body().collect().await {
        Ok(_) if refused => Answer::Refusal,
        Ok(_) if is_result => Answer::Result,
        _ => Answer::Failure,
    }
}
