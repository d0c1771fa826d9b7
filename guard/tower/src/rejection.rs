//! A rejection as a response. HTTP: a status with headers; gRPC: a status in trailers only;
//! gRPC-Web: a status in a frame of the content. Does not contain the decision.

use crate::body::GuardedBody;
use crate::headers::{
    DECISION, ENVOY_OVERLOADED, GRPC_MESSAGE, GRPC_PUSHBACK, GRPC_STATUS, Grpc, REASON, RETRY_AFTER_MS,
};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Body;
use leeward_gate::{DecisionId, DecisionReason, Rejection};

const MESSAGE: &str = "refused by admission control";

/// Makes the response to a rejected request with these headers: its head, and content that a
/// gRPC-Web client reads. For front ends other than [`crate::GuardedService`].
pub fn rejection_response(rejection: &Rejection, request: &http::HeaderMap) -> Response<&'static [u8]> {
    let grpc = crate::headers::grpc(request);
    let content = grpc.as_ref().and_then(|grpc| grpc_content(grpc, grpc_status(rejection)));
    let (head, _) = response::<Nothing>(rejection, grpc.as_ref()).into_parts();
    Response::from_parts(head, content.unwrap_or_default())
}

/// A service's body without bytes.
struct Nothing;

impl Body for Nothing {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Ready(None)
    }
}

/// Makes the response to a rejected request.
pub(crate) fn response<R: Body<Data: 'static>>(rejection: &Rejection, grpc: Option<&Grpc>) -> Response<GuardedBody<R>> {
    let wait = u64::try_from(rejection.retry_after.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut response = match grpc {
        Some(grpc) => grpc_response(grpc, grpc_status(rejection)),
        None => {
            let mut response = Response::new(GuardedBody::rejected());
            let over_share = rejection.reason == DecisionReason::Share;
            *response.status_mut() =
                if over_share { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
            response
        }
    };
    let headers = response.headers_mut();
    if grpc.is_some() {
        headers.insert(GRPC_PUSHBACK, HeaderValue::from(wait));
    } else {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait));
        headers.insert(ENVOY_OVERLOADED, HeaderValue::from_static("true"));
    }
    headers.insert(REASON, HeaderValue::from_static(rejection.reason.name()));
    headers.insert(DECISION, decision_number(rejection.decision));
    response
}

/// The number in hexadecimal digits, as its `Display` writes it but without a formatter.
fn decision_number(decision: DecisionId) -> HeaderValue {
    let mut digits = [b'0'; 16];
    let mut rest = decision.0;
    let mut from = digits.len() - 1;
    loop {
        digits[from] = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
        if rest == 0 || from == 0 {
            return HeaderValue::from_bytes(&digits[from..]).unwrap_or(HeaderValue::from_static("0"));
        }
        from -= 1;
    }
}

/// An exceeded deadline keeps its own status. All other reasons are an exhausted resource, which
/// default policies don't retry.
fn grpc_status(rejection: &Rejection) -> GrpcStatus {
    if rejection.reason == DecisionReason::Deadline { GrpcStatus::Deadline } else { GrpcStatus::Exhausted }
}

/// Content of the response to a gRPC-Web call.
fn grpc_content(grpc: &Grpc, code: GrpcStatus) -> Option<&'static [u8]> {
    match grpc {
        Grpc::Native => None,
        Grpc::Web { is_text, .. } => Some(code.frame(*is_text)),
    }
}

/// Status with which a gRPC call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    /// `DEADLINE_EXCEEDED`.
    Deadline,
    /// `RESOURCE_EXHAUSTED`.
    Exhausted,
}

impl GrpcStatus {
    fn number(self) -> &'static str {
        if self == GrpcStatus::Deadline { "4" } else { "8" }
    }

    /// The status as gRPC-Web's last frame: its kind (0x80, trailers), its length, and lines as in
    /// HTTP/1 (PROTOCOL-WEB.md of gRPC).
    fn frame(self, is_text: bool) -> &'static [u8] {
        match (self, is_text) {
            (GrpcStatus::Deadline, false) => {
                b"\x80\0\0\0\x3agrpc-status:4\r\ngrpc-message:refused by admission control\r\n"
            }
            (GrpcStatus::Exhausted, false) => {
                b"\x80\0\0\0\x3agrpc-status:8\r\ngrpc-message:refused by admission control\r\n"
            }
            (GrpcStatus::Deadline, true) => {
                b"gAAAADpncnBjLXN0YXR1czo0DQpncnBjLW1lc3NhZ2U6cmVmdXNlZCBieSBhZG1pc3Npb24gY29udHJvbA0K"
            }
            (GrpcStatus::Exhausted, true) => {
                b"gAAAADpncnBjLXN0YXR1czo4DQpncnBjLW1lc3NhZ2U6cmVmdXNlZCBieSBhZG1pc3Npb24gY29udHJvbA0K"
            }
        }
    }
}

/// Makes a response that ends a call before its first message.
pub(crate) fn grpc_response<R: Body<Data: 'static>>(grpc: &Grpc, code: GrpcStatus) -> Response<GuardedBody<R>> {
    let (kind, framed) = match grpc {
        Grpc::Native => (HeaderValue::from_static("application/grpc"), None),
        Grpc::Web { kind, is_text } => (kind.clone(), GuardedBody::with_content(code.frame(*is_text))),
    };
    // Without a message before it, gRPC-Web also takes the status from the headers. But browsers
    // hide headers from pages of another origin.
    let is_framed = framed.is_some();
    let mut response = Response::new(framed.unwrap_or_else(GuardedBody::rejected));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if !is_framed {
        response.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static(code.number()));
        response.headers_mut().insert(GRPC_MESSAGE, HeaderValue::from_static(MESSAGE));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a base64 text without padding.
    fn decoded(text: &[u8]) -> Vec<u8> {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digit = |byte: &u8| alphabet.iter().position(|letter| letter == byte).unwrap();
        let group = |four: &[u8]| four.iter().fold(0, |group, byte| group << 6 | digit(byte)) as u32;
        text.chunks(4).flat_map(|four| group(four).to_be_bytes()[1..].to_vec()).collect()
    }

    #[test]
    fn a_decision_is_written_as_it_is_displayed() {
        for number in [0, 1, 15, 16, 0x8f3a, u64::MAX] {
            let decision = DecisionId(number);
            assert_eq!(decision_number(decision), decision.to_string().as_str());
        }
    }

    #[test]
    fn grpc_web_trailers_are_encoded_in_binary_and_base64() {
        for code in [GrpcStatus::Deadline, GrpcStatus::Exhausted] {
            let frame = code.frame(false);
            assert_eq!((frame[0], &frame[1..5]), (0x80, &(frame.len() as u32 - 5).to_be_bytes()[..]));
            let lines = format!("grpc-status:{}\r\ngrpc-message:{MESSAGE}\r\n", code.number());
            assert_eq!(str::from_utf8(&frame[5..]), Ok(lines.as_str()));
            assert_eq!(decoded(code.frame(true)), frame);
        }
    }
}
