//! gRPC over HTTP/2: the prefix of a message, statuses, and the timeout header (PROTOCOL-HTTP2).

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use leeward_core::units::Nanos;

/// Status of a call with a result.
pub(crate) const OK: u32 = 0;
/// Status of an unknown error, also of a status that is no number.
const UNKNOWN: u32 = 2;
/// Status of a call that a limit rejected.
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
/// Status of a call that the service does not take now.
pub(crate) const UNAVAILABLE: u32 = 14;

/// Names of the statuses, by their code.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Largest timeout value: eight digits.
const TIMEOUT_MAX: u64 = 99_999_999;

/// Prefixes an encoded message: not compressed, and its length.
///
/// A message is shorter than 4 GiB.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

/// Code of `grpc-status`, if it is there.
pub(crate) fn status(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get("grpc-status")?;
    Some(value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN))
}

/// Name of a status.
pub(crate) fn status_name(code: u32) -> Option<&'static str> {
    NAMES.get(code as usize).copied()
}

/// Value of `grpc-timeout`: microseconds, or milliseconds if those have too many digits.
pub(crate) fn timeout(rest: Nanos) -> HeaderValue {
    let micros = rest.0 / 1_000;
    let text =
        if micros <= TIMEOUT_MAX { format!("{micros}u") } else { format!("{}m", (micros / 1_000).min(TIMEOUT_MAX)) };
    // Digits and a letter are always a valid value.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("0u"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_prefix_of_five_bytes() {
        assert_eq!(&frame(b"")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&frame(b"ab")[..], [0, 0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn a_timeout_has_at_most_eight_digits() {
        assert_eq!(timeout(Nanos::from_micros(1_800)), "1800u");
        assert_eq!(timeout(Nanos::from_secs(99)), "99000000u");
        assert_eq!(timeout(Nanos::from_secs(100)), "100000m");
    }
}
