//! Access rules for browsers. Does not contain responses.
//!
//! The port has no passwords: only programs on this machine reach a loopback address. A web page
//! from elsewhere must not reach the port through the operator's browser.

use crate::request::Request;
use std::net::{IpAddr, SocketAddr};

/// Name in a `Host` field or in an origin, without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True if the request names this port by a loopback name. Another name that resolves to this
/// address is rejected (DNS rebinding).
///
/// A port that listens on a non-loopback address may have any name.
pub(crate) fn is_host_allowed(request: &Request, address: SocketAddr) -> bool {
    !address.ip().is_loopback() || request.host.is_empty() || is_loopback(name_of(&request.host))
}

/// Host name under which a page may also request other ports of the same machine.
pub(crate) fn valid_host(request: &Request) -> Option<&str> {
    let name = name_of(&request.host);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte);
    (!name.is_empty() && name.len() <= 253 && name.bytes().all(is_plain)).then_some(name)
}

/// Origin that may read the response from another port: a dashboard on the same machine.
pub(crate) fn allowed_origin(request: &Request) -> Option<&str> {
    let origin = request.origin.as_deref()?;
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    let (theirs, ours) = (name_of(authority), valid_host(request)?);
    let same = theirs.eq_ignore_ascii_case(ours) || (is_loopback(theirs) && is_loopback(ours));
    let is_plain = origin.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-[]:/".contains(&byte));
    (same && is_plain).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: &str, origin: Option<&str>) -> Request {
        Request { host: host.into(), origin: origin.map(Into::into), ..Request::default() }
    }

    #[test]
    fn a_foreign_host_name_for_a_local_port_is_rejected() {
        let (local, open) = ("127.0.0.1:9464".parse().unwrap(), "0.0.0.0:9464".parse().unwrap());
        for host in ["127.0.0.1:9464", "localhost:9464", "LocalHost", "[::1]:9464", "127.9.9.9", ""] {
            assert!(is_host_allowed(&request(host, None), local), "{host}");
        }
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil:9464", "10.0.0.1"] {
            assert!(!is_host_allowed(&request(host, None), local), "{host}");
            assert!(is_host_allowed(&request(host, None), open), "{host}");
        }
    }

    #[test]
    fn only_origins_on_the_same_host_are_allowed() {
        let check = |host: &str, origin: &str| allowed_origin(&request(host, Some(origin))).is_some();
        assert!(check("127.0.0.1:9464", "http://127.0.0.1:9465"));
        assert!(check("127.0.0.1:9464", "http://localhost:9465"));
        assert!(check("db-1:9464", "http://db-1:9465"));
        assert!(!check("127.0.0.1:9464", "http://evil.example"));
        assert!(!check("127.0.0.1:9464", "null"));
        assert!(!check("127.0.0.1:9464", "http://127.0.0.1.evil.example:9464"));
        assert!(!check("127.0.0.1:9464", "http://127.0.0.1:1\r\nx: y"));
        assert!(!check("db-1:9464", "http://db-2:9464"));
    }
}
