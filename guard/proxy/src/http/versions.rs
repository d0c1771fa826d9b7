//! A request in the form of HTTP/1.1, in which the proxy holds it, and in that of HTTP/2, in which
//! some backends take it. Does not contain upgrades.

use http::header::{CONNECTION, COOKIE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme, Uri};
use http::{Request, Version};

/// Turns a request into the form of HTTP/2; false: its host is none that HTTP/2 can state.
/// `backend`: the host of a request that has none.
pub(crate) fn to_http2<B>(request: &mut Request<B>, scheme: Scheme, backend: &str) -> bool {
    let headers = request.headers_mut();
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
    let host = headers.remove(HOST).filter(|host| !host.is_empty());
    let authority = match &host {
        Some(host) => Authority::try_from(host.as_bytes()),
        None => Authority::try_from(backend),
    };
    let Ok(authority) = authority else { return false };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(scheme), Some(authority));
    let Ok(uri) = Uri::from_parts(parts) else { return false };
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    true
}

/// Joins cookies: HTTP/2 may send each in a header of its own (RFC 9113 §8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    if cookies.next().is_none() || cookies.next().is_none() {
        return;
    }
    let all: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}
