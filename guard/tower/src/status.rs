//! Status of a response: a result, a failure of the service, or an unknown route. Does not contain
//! decisions.

use crate::headers;
use http::header::HeaderMap;
use http::{Response, StatusCode};

/// gRPC statuses that are the server's fault, by OpenTelemetry's conventions for servers:
/// `UNKNOWN`, `DEADLINE_EXCEEDED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`.
const FAILURES: [&str; 6] = ["2", "4", "12", "13", "14", "15"];
const UNIMPLEMENTED: &str = "12";

fn grpc(headers: &HeaderMap) -> Option<&str> {
    headers::first(headers, "grpc-status")?.to_str().ok()
}

/// Whether the response is neither a client error nor a server error.
pub(crate) fn is_success<R>(response: &Response<R>) -> bool {
    response.status().is_success() && grpc(response.headers()).is_none_or(|status| status == "0")
}

/// Whether the service has failed, according to the response's status and headers.
pub(crate) fn is_failure<R>(response: &Response<R>) -> bool {
    response.status().is_server_error() || is_failed_call(response.headers())
}

/// Whether headers or trailers say that a gRPC call failed by the server's fault.
pub fn is_failed_call(headers: &HeaderMap) -> bool {
    grpc(headers).is_some_and(|status| FAILURES.contains(&status))
}

/// Whether the service has no such route.
pub(crate) fn is_unknown<R>(response: &Response<R>) -> bool {
    matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
        || grpc(response.headers()) == Some(UNIMPLEMENTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::GRPC_STATUS;
    use http::HeaderValue;

    fn response(status: u16, grpc: Option<&'static str>) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if let Some(grpc) = grpc {
            response.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static(grpc));
        }
        response
    }

    #[test]
    fn a_status_is_classified_as_result_failure_or_unknown_route() {
        for (status, grpc, expected) in [
            (200, None, (true, false, false)),
            (200, Some("0"), (true, false, false)),
            (404, None, (false, false, true)),
            (400, None, (false, false, false)),
            (500, None, (false, true, false)),
            (503, None, (false, true, false)),
            (200, Some("5"), (false, false, false)),
            (200, Some("13"), (false, true, false)),
            (200, Some("12"), (false, true, true)),
        ] {
            let response = response(status, grpc);
            assert_eq!(
                (is_success(&response), is_failure(&response), is_unknown(&response)),
                expected,
                "{status} {grpc:?}"
            );
        }
    }
}
