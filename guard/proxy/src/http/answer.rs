//! Answers of the proxy's own: rejections, malformed requests, backends that fail. Each has the
//! header `leeward-reason`, so nobody takes it for the backend's. Does not contain decisions.

use super::base64;
use super::response_body::ResponseBody;
use bytes::Bytes;
use h2::Reason;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use leeward_gate::Rejection;
use leeward_tower::headers::{GRPC_MESSAGE, GRPC_STATUS, Grpc, REASON};
use leeward_tower::rejection_response;

/// Reason for an answer of the proxy's own, other than a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request is malformed or ambiguous.
    BadRequest,
    /// The head has too many headers. hyper answers one that is too long.
    HeadTooLarge,
    /// The method or transfer coding is not served.
    NotServed,
    /// The client sent its request too slowly.
    ClientTimeout,
    /// The client waits for leave to send its body.
    Expectation,
    /// No backend accepts connections.
    Unreachable,
    /// The backend closed its connection before it answered.
    BadAnswer,
    /// The backend reset the stream of HTTP/2 before it answered.
    Reset(Reason),
    /// The backend's answer is malformed, too long, or of a kind that can't be passed on.
    Malformed,
    /// The backend did not answer in time.
    BackendTimeout,
}

impl Failure {
    fn status(self) -> StatusCode {
        match self {
            Failure::BadRequest => StatusCode::BAD_REQUEST,
            Failure::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Failure::NotServed => StatusCode::NOT_IMPLEMENTED,
            Failure::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Failure::Expectation => StatusCode::EXPECTATION_FAILED,
            Failure::Unreachable | Failure::BadAnswer | Failure::Malformed | Failure::Reset(_) => {
                StatusCode::BAD_GATEWAY
            }
            Failure::BackendTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The status of a gRPC call; that of a reset is gRPC's own
    /// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors>).
    fn grpc_status(self) -> u8 {
        const CANCELLED: u8 = 1;
        const DEADLINE_EXCEEDED: u8 = 4;
        const PERMISSION_DENIED: u8 = 7;
        const RESOURCE_EXHAUSTED: u8 = 8;
        const UNIMPLEMENTED: u8 = 12;
        const INTERNAL: u8 = 13;
        const UNAVAILABLE: u8 = 14;
        match self {
            Failure::BadRequest | Failure::HeadTooLarge | Failure::Malformed => INTERNAL,
            Failure::NotServed => UNIMPLEMENTED,
            Failure::ClientTimeout | Failure::Expectation | Failure::Reset(Reason::CANCEL) => CANCELLED,
            Failure::Reset(Reason::ENHANCE_YOUR_CALM) => RESOURCE_EXHAUSTED,
            Failure::Reset(Reason::INADEQUATE_SECURITY) => PERMISSION_DENIED,
            Failure::Reset(Reason::REFUSED_STREAM) => UNAVAILABLE,
            Failure::Reset(_) => INTERNAL,
            Failure::Unreachable | Failure::BadAnswer => UNAVAILABLE,
            Failure::BackendTimeout => DEADLINE_EXCEEDED,
        }
    }

    /// The word in `leeward-reason`, and a sentence.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Failure::BadRequest => ("bad-request", "The request is malformed or ambiguous.\n"),
            Failure::HeadTooLarge => ("bad-request", "The request has too many headers.\n"),
            Failure::NotServed => ("not-served", "The proxy does not serve such requests.\n"),
            Failure::ClientTimeout => ("client-timeout", "The request did not arrive in time.\n"),
            Failure::Expectation => ("client-timeout", "The proxy does not ask for the body: send it unasked.\n"),
            Failure::Unreachable => ("backend-unreachable", "The service can't be reached.\n"),
            Failure::BadAnswer => ("backend-failed", "The service closed the connection without an answer.\n"),
            Failure::Reset(_) => ("backend-failed", "The service ended the request without an answer.\n"),
            Failure::Malformed => ("backend-malformed", "The service's response is malformed or too long.\n"),
            Failure::BackendTimeout => ("backend-timeout", "The service did not answer in time.\n"),
        }
    }

    /// Whether the client's connection must end: what follows on it can't be told.
    fn closes(self) -> bool {
        matches!(self, Failure::BadRequest | Failure::HeadTooLarge | Failure::NotServed | Failure::ClientTimeout)
    }
}

/// The answer that states a failure, to a gRPC call or another request.
pub(crate) fn failed(failure: Failure, call: Option<&Grpc>) -> Response<ResponseBody> {
    let (reason, sentence) = failure.words();
    let mut response = match call {
        Some(call) => failed_call(failure, sentence, call),
        None => {
            let mut response = Response::new(ResponseBody::own(Bytes::from_static(sentence.as_bytes())));
            *response.status_mut() = failure.status();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(REASON, HeaderValue::from_static(reason));
    if failure.closes() {
        close(headers);
    }
    response
}

/// The answer to a request that must pass no further proxy.
pub(crate) fn last_of_forwards() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    response.headers_mut().insert(REASON, HeaderValue::from_static("max-forwards"));
    response
}

/// The answer to a gRPC call: a status in the head, which then is all, or in gRPC-Web's last frame.
fn failed_call(failure: Failure, sentence: &'static str, call: &Grpc) -> Response<ResponseBody> {
    let status = failure.grpc_status();
    match call {
        Grpc::Native => {
            let mut response = Response::new(ResponseBody::empty());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(status)));
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static(sentence.trim_ascii_end()));
            response
        }
        Grpc::Web { kind, is_text } => {
            let lines = format!("grpc-status:{status}\r\ngrpc-message:{}\r\n", sentence.trim_end());
            // Its kind (0x80, trailers), its length, and lines as in HTTP/1.
            let frame = [&[0x80][..], &(lines.len() as u32).to_be_bytes(), lines.as_bytes()].concat();
            let content = if *is_text { base64::encode(&frame).into() } else { Bytes::from(frame) };
            let mut response = Response::new(ResponseBody::own(content));
            response.headers_mut().insert(CONTENT_TYPE, kind.clone());
            response
        }
    }
}

/// The answer to a rejected request with these headers.
pub(crate) fn rejected(rejection: &Rejection, request: &HeaderMap) -> Response<ResponseBody> {
    rejection_response(rejection, request).map(|content| ResponseBody::own(Bytes::from_static(content)))
}

/// Ends the client's connection with the answer.
pub(crate) fn close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}
