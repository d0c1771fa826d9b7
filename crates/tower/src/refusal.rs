//! A refusal as a response: for HTTP a status with headers, for gRPC trailers alone. Its body is empty. Never here: the decision.

use crate::headers::{DECISION, ENVOY_OVERLOADED, GRPC_MESSAGE, GRPC_PUSHBACK, GRPC_STATUS, REASON, RETRY_AFTER_MS};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use leeward_edge::{Reason, Refusal};

/// The answer to a refused request.
pub(crate) fn response<B>(refusal: &Refusal, grpc: bool, body: B) -> Response<B> {
    let mut response = Response::new(body);
    let wait = u64::try_from(refusal.retry_after.as_millis()).unwrap_or(u64::MAX).max(1);
    if !grpc {
        let over_share = refusal.reason == Reason::Share;
        *response.status_mut() =
            if over_share { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    }
    let headers = response.headers_mut();
    if grpc {
        // A deadline that has passed is a deadline that has passed; all else is a resource that is exhausted, which default
        // policies do not retry.
        let status = if refusal.reason == Reason::Deadline { "4" } else { "8" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static("refused by admission control"));
        headers.insert(GRPC_PUSHBACK, HeaderValue::from(wait));
    } else {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait));
        headers.insert(ENVOY_OVERLOADED, HeaderValue::from_static("true"));
    }
    headers.insert(REASON, HeaderValue::from_static(refusal.reason.word()));
    if let Ok(number) = HeaderValue::from_str(&refusal.decision.to_string()) {
        headers.insert(DECISION, number);
    }
    response
}
