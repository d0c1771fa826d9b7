//! Target and host of a request: whether everybody on the way reads the same of them. Does not
//! contain other headers.

use http::Method;
use http::header::HOST;
use http::request::Parts;

/// Whether the host of the target is that of `host`, if both are there.
pub(super) fn is_same_host(parts: &Parts) -> bool {
    match (parts.uri.authority(), parts.headers.get(HOST)) {
        (Some(authority), Some(host)) => authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()),
        _ => true,
    }
}

/// Whether the target is a path, an absolute URI of HTTP, or the `*` of OPTIONS.
pub(super) fn is_target(parts: &Parts) -> bool {
    let is_path = || match parts.uri.path() {
        "*" => parts.method == Method::OPTIONS,
        path => path.starts_with('/'),
    };
    match (parts.uri.scheme_str(), parts.uri.authority()) {
        (None, None) => is_path(),
        (Some("http" | "https"), Some(authority)) => {
            let host = authority.as_str().as_bytes();
            !host.is_empty() && is_host(host) && is_path()
        }
        _ => false,
    }
}

/// Whether these are a host and perhaps a port, and nothing that a backend may read as more. A
/// target without an authority has an empty host (RFC 9110 §7.2).
pub(super) fn is_host(text: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%".contains(byte);
    let is_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let (host, port) = match text.iter().rposition(|byte| *byte == b':') {
        Some(at) if !text.ends_with(b"]") => (&text[..at], &text[at + 1..]),
        _ => (text, &text[..0]),
    };
    let is_port = port.len() <= 5 && port.iter().all(u8::is_ascii_digit);
    let is_host = match host.strip_prefix(b"[") {
        Some(rest) => rest.strip_suffix(b"]").is_some_and(|inner| inner.len() > 1 && inner.iter().all(is_address)),
        None => host.iter().all(is_name) && (!host.is_empty() || text.is_empty()),
    };
    is_port && is_host
}
