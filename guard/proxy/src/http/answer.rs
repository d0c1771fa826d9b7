//! Answers of the proxy's own: rejections, malformed requests, backends that fail. Each has the
//! header `leeward-reason`, so nobody takes it for the backend's. Does not contain decisions.

use super::response_body::ResponseBody;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use leeward_gate::Rejection;
use leeward_tower::headers::REASON;
use leeward_tower::rejection_response;

/// Reason for an answer of the proxy's own, other than a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request is malformed or ambiguous.
    BadRequest,
    /// The method or transfer coding is not served.
    NotServed,
    /// The client sent its request too slowly.
    ClientTimeout,
    /// No backend accepts connections.
    Unreachable,
    /// The backend closed its connection before it answered, or answered garbage.
    BadAnswer,
    /// The backend did not answer in time.
    BackendTimeout,
}

impl Failure {
    fn status(self) -> StatusCode {
        match self {
            Failure::BadRequest => StatusCode::BAD_REQUEST,
            Failure::NotServed => StatusCode::NOT_IMPLEMENTED,
            Failure::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Failure::Unreachable | Failure::BadAnswer => StatusCode::BAD_GATEWAY,
            Failure::BackendTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The word in `leeward-reason`, and a sentence.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Failure::BadRequest => ("bad-request", "The request is malformed or ambiguous.\n"),
            Failure::NotServed => ("not-served", "The proxy does not serve such requests.\n"),
            Failure::ClientTimeout => ("client-timeout", "The request did not arrive in time.\n"),
            Failure::Unreachable => ("backend-unreachable", "The service can't be reached.\n"),
            Failure::BadAnswer => ("backend-failed", "The service closed the connection without an answer.\n"),
            Failure::BackendTimeout => ("backend-timeout", "The service did not answer in time.\n"),
        }
    }

    /// Whether the client's connection must end: what follows on it can't be told.
    fn closes(self) -> bool {
        matches!(self, Failure::BadRequest | Failure::NotServed | Failure::ClientTimeout)
    }
}

/// The answer that states a failure.
pub(crate) fn failed(failure: Failure) -> Response<ResponseBody> {
    let (reason, sentence) = failure.words();
    let mut response = Response::new(ResponseBody::Text(Some(Bytes::from_static(sentence.as_bytes()))));
    *response.status_mut() = failure.status();
    let headers = response.headers_mut();
    headers.insert(REASON, HeaderValue::from_static(reason));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if failure.closes() {
        close(headers);
    }
    response
}

/// The answer to a rejected request with these headers.
pub(crate) fn rejected(rejection: &Rejection, request: &HeaderMap) -> Response<ResponseBody> {
    let to_body =
        |content: &'static [u8]| ResponseBody::Text((!content.is_empty()).then(|| Bytes::from_static(content)));
    rejection_response(rejection, request).map(to_body)
}

/// Ends the client's connection with the answer.
pub(crate) fn close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}
