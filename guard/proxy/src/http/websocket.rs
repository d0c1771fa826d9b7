//! WebSocket between HTTP/1.1, where it is an upgrade with a key (RFC 6455), and HTTP/2, where it
//! is an extended CONNECT without one (RFC 8441). Does not contain what is said in a WebSocket.

use super::base64;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::ext::Protocol;
use ring::digest;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Name of the protocol in both versions.
pub(super) const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const FIXED: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether this is an extended CONNECT that asks for a WebSocket.
pub(super) fn is_extended_connect(parts: &Parts) -> bool {
    parts.method == Method::CONNECT
        && parts.extensions.get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket")
}

/// Turns an extended CONNECT into the GET that asks for an upgrade.
pub(super) fn to_upgrade(parts: &mut Parts) {
    parts.method = Method::GET;
    parts.extensions.remove::<Protocol>();
    parts.headers.remove(CONTENT_LENGTH);
    let mut key = [0; 16];
    for half in key.chunks_mut(8) {
        // Seeded by the system; the key has to be new, and needs not be secret (RFC 6455 §10.3).
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_ne_bytes());
    }
    if let Ok(key) = HeaderValue::try_from(base64::encode(&key)) {
        parts.headers.insert(SEC_WEBSOCKET_KEY, key);
    }
}

/// Turns the GET of an upgrade into an extended CONNECT, if it asks for a WebSocket. HTTP/2 has no
/// other upgrades: they are optional, and are left out.
pub(super) fn to_extended_connect<B>(request: &mut Request<B>) -> bool {
    let asks = request.headers_mut().remove(UPGRADE).is_some_and(|protocol| is_websocket(&protocol));
    if asks {
        *request.method_mut() = Method::CONNECT;
        request.headers_mut().remove(SEC_WEBSOCKET_KEY);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    asks
}

/// Turns the answer to an extended CONNECT into that to the upgrade with these headers.
pub(super) fn to_switching<B>(response: &mut Response<B>, request: &HeaderMap) {
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, WEBSOCKET);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(key) = request.get(SEC_WEBSOCKET_KEY)
        && let Ok(accept) = HeaderValue::try_from(accept(key.as_bytes()))
    {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
}

/// Turns the answer to an upgrade into that to an extended CONNECT.
pub(super) fn to_connected<B>(response: &mut Response<B>) {
    *response.status_mut() = StatusCode::OK;
    let of_http1: [HeaderName; 4] = [UPGRADE, CONNECTION, SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH];
    for name in of_http1 {
        response.headers_mut().remove(name);
    }
}

/// Whether an upgrade is to a WebSocket.
pub(super) fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket")
}

/// Proof that the server has read the key.
fn accept(key: &[u8]) -> String {
    let mut sum = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    sum.update(key.trim_ascii());
    sum.update(FIXED);
    base64::encode(sum.finish().as_ref())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_key_is_accepted_as_in_the_standard() {
        assert_eq!(super::accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
