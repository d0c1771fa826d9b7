//! A lock's rejection as a handler's response. Does not contain the lock's decision.

use crate::headers::{ENVOY_OVERLOADED, REASON};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use leeward_runtime::locks::Congested;

/// Response of a handler whose lock or acquire queue has rejected the request.
///
/// HTTP: `503` with the reason `lock`. tonic: `RESOURCE_EXHAUSTED`.
///
/// ```
/// use leeward_tower::{LockRejection, locks::Mutex};
///
/// static COUNTER: std::sync::LazyLock<Mutex<u64>> =
///     std::sync::LazyLock::new(|| Mutex::new("counter", 0));
///
/// async fn handler() -> Result<String, LockRejection> {
///     let mut counter = COUNTER.lock_unless_congested().await?;
///     *counter += 1;
///     Ok(counter.to_string())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRejection(pub Congested);

impl LockRejection {
    /// The HTTP response.
    pub fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        headers.insert(ENVOY_OVERLOADED, HeaderValue::from_static("true"));
        headers.insert(REASON, HeaderValue::from_static("lock"));
        response
    }
}

impl From<Congested> for LockRejection {
    fn from(congested: Congested) -> Self {
        LockRejection(congested)
    }
}

impl std::fmt::Display for LockRejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LockRejection {}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for LockRejection {
    fn into_response(self) -> axum::response::Response {
        self.response()
    }
}

#[cfg(feature = "tonic")]
impl From<LockRejection> for tonic::Status {
    fn from(rejection: LockRejection) -> Self {
        let mut status = tonic::Status::resource_exhausted(rejection.to_string());
        status.metadata_mut().insert("leeward-reason", tonic::metadata::MetadataValue::from_static("lock"));
        status
    }
}
