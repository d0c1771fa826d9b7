//! Heads of requests and answers: what makes a request ambiguous, what concerns one connection only
//! (RFC 9110 §7.6.1), and what tells the backend about the client. Does not contain parsing.

use super::answer::Failure;
use super::target::{is_host, is_same_host, is_target};
use super::{versions, websocket};
use crate::transport::proxy_protocol::Route;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue, MAX_FORWARDS, TE, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use http::request::Parts;
use http::{HeaderMap, Method, Uri, Version};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers that only a trusted peer may set.
const OF_TRUSTED_PEERS: [&str; 6] = [
    "forwarded",
    "leeward",
    "x-envoy-attempt-count",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-external-address",
    "x-real-ip",
];
/// Beginnings of further ones. Proxies put a client's verified certificate into some of them.
const FAMILIES_OF_TRUSTED_PEERS: [&str; 5] =
    ["x-forwarded-", "client-cert", "ssl-client-", "x-client-cert", "x-ssl-client-"];

/// Most headers of a request, as hyper has it for HTTP/1.
pub(crate) const HEADERS_MAX: usize = 128;

/// Name of this proxy in `via`, by the version of the message.
fn name(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2.0 leeward",
        Version::HTTP_10 => "1.0 leeward",
        _ => "1.1 leeward",
    })
}

/// A client, as it appears in headers; made once per connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The address; loopback for a client of a Unix socket, which has none.
    pub(crate) address: IpAddr,
    /// Whether its connection is encrypted.
    pub(crate) is_tls: bool,
    /// Addresses that backends are told by the PROXY protocol, if they are.
    pub(crate) route: Option<Box<Route>>,
    /// The address in headers; `None`: it has none.
    text: Option<HeaderValue>,
    /// Twice the number of the settings by which it is trusted or not, and 1 if it is.
    trust: AtomicU64,
}

impl Clone for Peer {
    fn clone(&self) -> Self {
        Peer {
            address: self.address,
            is_tls: self.is_tls,
            route: self.route.clone(),
            text: self.text.clone(),
            trust: AtomicU64::new(self.trust.load(Ordering::Relaxed)),
        }
    }
}

/// An even number that no settings have.
const UNJUDGED: u64 = u64::MAX - 1;

impl Peer {
    /// A client with this address; `None`: of a Unix socket, so on this machine.
    pub(crate) fn new(address: Option<IpAddr>) -> Self {
        let address = address.map(|address| address.to_canonical());
        let text = address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Peer { address, is_tls: false, route: None, text, trust: AtomicU64::new(UNJUDGED) }
    }

    /// Judges whether to trust it, if the settings have changed: `version` is their number.
    pub(crate) fn judge(&self, version: u64, trusted: &[IpNet]) {
        if self.trust.load(Ordering::Relaxed) / 2 != version {
            let is_trusted = trusted.iter().any(|network| network.contains(&self.address));
            self.trust.store(version * 2 + u64::from(is_trusted), Ordering::Relaxed);
        }
    }

    /// Its address, if it has one.
    pub(crate) fn known_address(&self) -> Option<IpAddr> {
        self.text.as_ref().map(|_| self.address)
    }

    /// Whether its headers about class, deadline and client are believed.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trust.load(Ordering::Relaxed) % 2 == 1
    }
}

/// Checks that everybody on the way reads the same request from this head. hyper has parsed it and
/// knows the length of its body.
pub(crate) fn check(parts: &Parts) -> Result<(), Failure> {
    if parts.method == Method::CONNECT && !websocket::is_extended_connect(parts) {
        return Err(Failure::NotServed);
    }
    if parts.headers.len() > HEADERS_MAX {
        return Err(Failure::HeadTooLarge);
    }
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    for (name, value) in &parts.headers {
        if name == HOST {
            hosts += 1;
            if !is_host(value.as_bytes()) {
                return Err(Failure::BadRequest);
            }
        } else if name == CONTENT_LENGTH {
            // Of HTTP/2: hyper joins equal ones of HTTP/1, and rejects others.
            lengths += 1;
        } else if name == TRANSFER_ENCODING {
            codings += 1;
            if !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Failure::NotServed);
            }
        }
    }
    let is_http2 = parts.version == Version::HTTP_2;
    // HTTP/2 states it as a part of the target (RFC 9113 §8.3.1).
    let has_host = hosts > 0 || (is_http2 && parts.uri.authority().is_some());
    let needs_host = parts.version >= Version::HTTP_11;
    if hosts > 1 || (needs_host && !has_host) || lengths > 1 || codings > 1 {
        return Err(Failure::BadRequest);
    }
    if is_http2 && !is_same_host(parts) {
        return Err(Failure::BadRequest);
    }
    if !matches!(parts.version, Version::HTTP_10 | Version::HTTP_11 | Version::HTTP_2) {
        return Err(Failure::NotServed);
    }
    if is_target(parts) { Ok(()) } else { Err(Failure::BadRequest) }
}

/// Proxies that a request may still pass, where that is limited (RFC 9110 §7.6.2).
pub(crate) fn forwards(parts: &Parts) -> Option<u64> {
    if !matches!(parts.method, Method::OPTIONS | Method::TRACE) {
        return None;
    }
    parts.headers.get(MAX_FORWARDS)?.to_str().ok()?.parse().ok()
}

/// Protocol that a request asks to change to, if it does. HTTP/2 is none: requests in such a tunnel
/// would pass the queue by.
pub(crate) fn upgrade(parts: &Parts) -> Option<HeaderValue> {
    if websocket::is_extended_connect(parts) {
        return Some(websocket::WEBSOCKET);
    }
    let protocol = parts.headers.get(UPGRADE)?;
    let is_http = protocol.as_bytes().split(|byte| *byte == b',').any(|protocol| {
        let protocol = protocol.trim_ascii_start();
        protocol.get(..2).is_some_and(|begin| begin.eq_ignore_ascii_case(b"h2"))
            || protocol.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"http"))
    });
    let asks = !is_http && parts.version == Version::HTTP_11 && has_token(&parts.headers, &CONNECTION, b"upgrade");
    asks.then(|| protocol.clone())
}

/// Bytes that a head holds, about.
pub(crate) fn size(parts: &Parts) -> usize {
    let headers = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>();
    headers + parts.uri.path_and_query().map_or(0, |path| path.as_str().len()) + 512
}

/// Turns a client's head into the one for the backend, in the form of HTTP/1.1.
pub(crate) fn to_backend(parts: &mut Parts, peer: &Peer, protocol: Option<HeaderValue>) {
    if parts.method == Method::CONNECT {
        websocket::to_upgrade(parts);
    }
    if parts.version == Version::HTTP_2 {
        versions::join_cookies(&mut parts.headers);
    }
    if let Some(forwards) = forwards(parts) {
        parts.headers.insert(MAX_FORWARDS, HeaderValue::from(forwards.saturating_sub(1)));
    }
    let headers = &mut parts.headers;
    let wants_trailers = headers.contains_key(TE) && has_token(headers, &TE, b"trailers");
    remove_hop_by_hop(headers);
    // hyper answers the expectation when the body is read, which is when the backend takes it.
    headers.remove(EXPECT);
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if !peer.is_trusted() {
        remove_unbelieved(headers);
    }
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        // The target of an absolute form outranks `host` (RFC 9112 §3.2.2).
        headers.insert(HOST, host);
    } else if !headers.contains_key(HOST) {
        // A client of HTTP/1.0 may leave it out, a request of HTTP/1.1 may not.
        headers.insert(HOST, HeaderValue::from_static(""));
    }
    if let Some(host) = headers.get(HOST)
        && !headers.contains_key(X_FORWARDED_HOST)
    {
        let host = host.clone();
        headers.insert(X_FORWARDED_HOST, host);
    }
    if let Some(client) = &peer.text {
        append_to_list(headers, X_FORWARDED_FOR, client);
        if headers.contains_key(FORWARDED)
            && let Ok(element) = HeaderValue::try_from(forwarded_element(peer))
        {
            append_to_list(headers, FORWARDED, &element);
        }
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if peer.is_tls { "https" } else { "http" }));
    }
    headers.append(VIA, name(parts.version));
    // A target such as `http://host#x` has an empty path, which looks like `/`.
    let path = parts.uri.path_and_query().filter(|path| path.as_str() != "/").cloned();
    parts.uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    parts.version = Version::HTTP_11;
}

/// Whether a backend's body has a coding besides `chunked`. hyper removes that, and nothing would
/// tell the client of the other.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings =
        headers.get_all(TRANSFER_ENCODING).iter().flat_map(|value| value.as_bytes().split(|c| *c == b','));
    codings.any(|coding| {
        let coding = coding.trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"chunked") && !coding.eq_ignore_ascii_case(b"identity")
    })
}

/// Turns a backend's head of this version into the one for the client.
pub(crate) fn to_client(headers: &mut HeaderMap, version: Version, protocol: Option<HeaderValue>) {
    remove_hop_by_hop(headers);
    // hyper takes equal lengths in a list; others may not (RFC 9110 §8.6).
    if let Some(length) = headers.get(CONTENT_LENGTH)
        && let Some(end) = length.as_bytes().iter().position(|byte| *byte == b',')
        && let Ok(length) = HeaderValue::from_bytes(length.as_bytes()[..end].trim_ascii())
    {
        headers.insert(CONTENT_LENGTH, length);
    }
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    headers.append(VIA, name(version));
}

/// Removes what concerns one connection only.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // Chunks outrank a length (RFC 9112 §6.3), which must not go on beside them.
        headers.remove(CONTENT_LENGTH);
    }
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
            // A client must not make the backend miss what every request needs.
            .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
            .collect();
        named.iter().for_each(|name| {
            headers.remove(name);
        });
        headers.remove(CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// Removes what only a trusted peer may say, also where it is spelt with `_`: gateways such as
/// CGI and WSGI make the same variable of both.
fn remove_unbelieved(headers: &mut HeaderMap) {
    let is_unbelieved = |name: &HeaderName| {
        let name = name.as_str();
        if !(name.starts_with(['f', 'l', 'x']) || name.starts_with("client") || name.starts_with("ssl")) {
            return false;
        }
        let name = name.replace('_', "-");
        OF_TRUSTED_PEERS.contains(&name.as_str())
            || FAMILIES_OF_TRUSTED_PEERS.iter().any(|family| name.starts_with(family))
    };
    let unbelieved: Vec<HeaderName> = headers.keys().filter(|name| is_unbelieved(name)).cloned().collect();
    for name in unbelieved {
        headers.remove(name);
    }
}

/// Appends to a header that is a list, as one line: some backends read the first or last line only.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, element: &HeaderValue) {
    let joined = headers.get_all(&name).iter().fold(Vec::new(), |mut joined, value| {
        joined.extend_from_slice(value.as_bytes());
        joined.extend_from_slice(b", ");
        joined
    });
    let value = match joined.is_empty() {
        true => element.clone(),
        false => {
            let whole = [joined.as_slice(), element.as_bytes()].concat();
            HeaderValue::from_bytes(&whole).unwrap_or_else(|_| element.clone())
        }
    };
    headers.insert(name, value);
}

/// An element of `forwarded` (RFC 7239 §6).
fn forwarded_element(peer: &Peer) -> String {
    let proto = if peer.is_tls { ";proto=https" } else { "" };
    match peer.address {
        IpAddr::V4(address) => format!("for={address}{proto}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\"{proto}"),
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    let mut tokens = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.any(|found| {
        found.trim_ascii().split(|byte| *byte == b';').next().is_some_and(|found| found.eq_ignore_ascii_case(token))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use leeward_testkit::fuzz::FuzzSearch;
    use leeward_testkit::random::Random;

    const NAMES: [&str; 16] = [
        "host",
        "connection",
        "te",
        "upgrade",
        "via",
        "x-forwarded-for",
        "forwarded",
        "x_forwarded-for",
        "leeward",
        "x-forwarded-x",
        "transfer-encoding",
        "content-length",
        "x-other",
        "expect",
        "keep-alive",
        "http2-settings",
    ];
    const VALUES: [&str; 16] = [
        "h",
        "h:80",
        "[::1]:8",
        "a@b",
        "upgrade, x-other",
        "te, host, content-length",
        "trailers;q=1, gzip",
        "websocket",
        "h2c, x",
        "chunked",
        "3",
        "for=1",
        "1, 2",
        "",
        "a:b:c",
        ", ,,",
    ];
    const TARGETS: [&str; 10] =
        ["/", "/a?b", "*", "http://h:1/x?y", "http://u@h/", "h:80", "ftp://h/", "http://[::1]", "/%00", "//h/x"];

    /// A request in lines: target, then `name: value`; some bytes differ from those of the tables.
    fn mutant(random: &mut Random) -> Vec<u8> {
        let mut lines = vec![TARGETS[random.below(TARGETS.len())].to_owned()];
        for _ in 0..random.below(9) {
            lines.push(format!("{}: {}", NAMES[random.below(NAMES.len())], VALUES[random.below(VALUES.len())]));
        }
        let mut bytes = lines.join("\n").into_bytes();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            if bytes[at] != b'\n' {
                bytes[at] = random.byte(b" ,;:@[]%/#*\t\xff_-");
            }
        }
        bytes
    }

    fn parse(bytes: &[u8], method: Method, version: Version) -> Option<Parts> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let mut request = Request::builder().method(method).version(version).uri(lines.next()?);
        for line in lines {
            let at = line.iter().position(|byte| *byte == b':')?;
            request = request.header(&line[..at], line[at + 1..].trim_ascii());
        }
        request.body(()).ok().map(|request| request.into_parts().0)
    }

    /// Whatever a client sends: what the backend gets is unambiguous, and no more than a path.
    #[test]
    fn any_head_is_rejected_or_made_safe() {
        let findings = std::env::temp_dir();
        let search = FuzzSearch { name: "proxy-head", findings: &findings, iterations: 60_000 };
        search.run(mutant, |random, bytes| {
            let method = [Method::GET, Method::OPTIONS, Method::CONNECT, Method::POST][random.below(4)].clone();
            let version = [Version::HTTP_11, Version::HTTP_11, Version::HTTP_10, Version::HTTP_2][random.below(4)];
            let Some(mut parts) = parse(bytes, method, version) else { return };
            if check(&parts).is_err() {
                return;
            }
            assert!(size(&parts) > 0);
            let network: IpNet = "10.0.0.0/8".parse().unwrap();
            let peer = Peer::new(Some([10, 0, 0, 1].into()));
            peer.judge(0, &[network][random.below(2)..]);
            let protocol = upgrade(&parts);
            to_backend(&mut parts, &peer, protocol.clone());
            let headers = &parts.headers;
            assert_eq!(headers.get_all(HOST).iter().count(), 1);
            assert!(is_host(headers[HOST].as_bytes()));
            let target = parts.uri.to_string();
            assert!(target.starts_with('/') || target == "*", "{target} {}", String::from_utf8_lossy(bytes));
            for name in [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS, TRANSFER_ENCODING, EXPECT] {
                assert!(!headers.contains_key(&name), "{name}");
            }
            assert_eq!(headers.contains_key(UPGRADE), protocol.is_some());
            assert!(headers.get(CONNECTION).is_none_or(|value| value == "upgrade" || value == "te"));
            let forwarded = headers[X_FORWARDED_FOR].as_bytes();
            assert!(forwarded.ends_with(b"10.0.0.1"));
            if !peer.is_trusted() {
                assert_eq!(forwarded, b"10.0.0.1");
                assert!(!headers.contains_key("leeward") && !headers.contains_key("x_forwarded-for"));
            }
            to_client(&mut parts.headers, Version::HTTP_11, None);
            assert!(!parts.headers.contains_key(CONNECTION));
        });
    }
}
