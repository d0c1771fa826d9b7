//! Classification of responses: results, rejections and failures.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;

use http::{HeaderMap, StatusCode};

use crate::grpc;

/// Header in which Leeward's layer sends the reason for a rejection.
const REASON: &str = "leeward-reason";

/// Longest reason that is kept, in bytes.
const REASON_MAX: usize = 32;

/// Name of a rejection or failure in the report. Its debug output is the bare name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Label {
    Status(StatusCode),
    Name(&'static str),
    /// Code of a gRPC status, followed by its name if it has one.
    Grpc(u32),
    Text(String),
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Status(status) => f.write_str(status.as_str()),
            Label::Name(name) => f.write_str(name),
            Label::Grpc(code) => match grpc::status_name(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "grpc-status {code}"),
            },
            Label::Text(text) => f.write_str(text),
        }
    }
}

/// Outcome of one exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server answered with a result.
    Completed,
    /// The server rejected the request.
    Rejected(Label),
    /// The server or the connection failed.
    Failed(Label),
    /// The request was not sent, so it can be sent on another connection.
    Unsent,
    /// The request was given up at its time-out.
    TimedOut,
}

/// Outcome of an HTTP response: below 400 a result, 429 and 503 rejections, all others failures.
///
/// 1xx statuses are no final responses; the client's library skips them, except 101.
pub(crate) fn classify_http(status: StatusCode, headers: &HeaderMap) -> Outcome {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Outcome::Rejected(reason(headers).unwrap_or(Label::Status(status)))
        }
        _ if status.is_success() || status.is_redirection() => Outcome::Completed,
        _ => Outcome::Failed(Label::Status(status)),
    }
}

/// Outcome of a gRPC response, whose status is in the headers or in the trailers.
///
/// RESOURCE_EXHAUSTED and UNAVAILABLE are rejections. A response that is no gRPC is classified by
/// its HTTP status.
pub(crate) fn classify_grpc(status: StatusCode, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Outcome {
    let found = trailers.and_then(grpc::status).or_else(|| grpc::status(headers));
    match found {
        Some(grpc::OK) => Outcome::Completed,
        Some(code @ (grpc::RESOURCE_EXHAUSTED | grpc::UNAVAILABLE)) => {
            let reason = trailers.and_then(reason).or_else(|| reason(headers));
            Outcome::Rejected(reason.unwrap_or(Label::Grpc(code)))
        }
        Some(code) => Outcome::Failed(Label::Grpc(code)),
        None => match classify_http(status, headers) {
            Outcome::Completed => Outcome::Failed(Label::Name("no grpc-status")),
            other => other,
        },
    }
}

/// The reason that Leeward's layer sends, if it is a word of printable ASCII.
fn reason(headers: &HeaderMap) -> Option<Label> {
    let text = headers.get(REASON)?.to_str().ok()?.trim();
    (!text.is_empty() && text.len() <= REASON_MAX).then(|| Label::Text(text.to_string()))
}

/// Name of an error of a connection.
pub(crate) fn classify_error(error: &hyper::Error) -> Outcome {
    if let Some(stream) = cause::<h2::Error>(error) {
        // The server has not processed streams above the last one that its GOAWAY names.
        if stream.is_go_away() && stream.is_remote() && stream.reason() == Some(h2::Reason::NO_ERROR) {
            return Outcome::Unsent;
        }
        if let Some(io) = stream.get_io() {
            return Outcome::Failed(io_label(io.kind()));
        }
        return Outcome::Failed(match stream.reason() {
            Some(reason) => Label::Text(format!("{reason:?}")),
            None => Label::Name("protocol"),
        });
    }
    if error.is_parse() {
        return Outcome::Failed(Label::Name(if error.to_string().contains("too large") {
            "head too large"
        } else {
            "protocol"
        }));
    }
    if let Some(io) = cause::<std::io::Error>(error) {
        return Outcome::Failed(io_label(io.kind()));
    }
    // Without another cause the connection ended before the response did.
    Outcome::Failed(Label::Name("closed"))
}

fn io_label(kind: ErrorKind) -> Label {
    Label::Name(match kind {
        ErrorKind::ConnectionReset => "reset",
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof | ErrorKind::ConnectionAborted => "closed",
        ErrorKind::InvalidData => "protocol",
        _ => "connection",
    })
}

/// The first cause of this type.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn refusals_are_told_apart_from_failures() {
        let check = |status: u16, expected: &str| {
            let outcome = classify_http(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
            assert_eq!(format!("{outcome:?}"), expected);
        };
        check(200, "Completed");
        check(204, "Completed");
        check(304, "Completed");
        check(404, "Failed(404)");
        check(500, "Failed(500)");
        check(429, "Rejected(429)");
        check(503, "Rejected(503)");
        check(101, "Failed(101)");
    }

    #[test]
    fn a_layers_reason_replaces_the_status() {
        let reason =
            |value: &str| classify_http(StatusCode::SERVICE_UNAVAILABLE, &headers(&[("leeward-reason", value)]));
        assert_eq!(format!("{:?}", reason("deadline")), "Rejected(deadline)");
        assert_eq!(format!("{:?}", reason(&"x".repeat(33))), "Rejected(503)");
        assert_eq!(format!("{:?}", reason("")), "Rejected(503)");
    }

    #[test]
    fn a_grpc_status_may_be_in_headers_or_trailers() {
        let check = |head: &[(&'static str, &str)], tail: Option<&[(&'static str, &str)]>, expected: &str| {
            let tail = tail.map(headers);
            let outcome = classify_grpc(StatusCode::OK, &headers(head), tail.as_ref());
            assert_eq!(format!("{outcome:?}"), expected);
        };
        check(&[], Some(&[("grpc-status", "0")]), "Completed");
        check(&[("grpc-status", "0")], None, "Completed");
        check(&[], Some(&[("grpc-status", "8")]), "Rejected(RESOURCE_EXHAUSTED)");
        check(&[("grpc-status", "14"), ("leeward-reason", "queue")], None, "Rejected(queue)");
        check(&[], Some(&[("grpc-status", "13")]), "Failed(INTERNAL)");
        check(&[], Some(&[("grpc-status", "77")]), "Failed(grpc-status 77)");
        check(&[], Some(&[("grpc-status", "x")]), "Failed(UNKNOWN)");
        check(&[], None, "Failed(no grpc-status)");
        let outcome = classify_grpc(StatusCode::SERVICE_UNAVAILABLE, &HeaderMap::new(), None);
        assert_eq!(format!("{outcome:?}"), "Rejected(503)");
    }
}
