//! Parses a request's head: target, host, framing, and the persistence of its connection. Contains
//! no answers.

use crate::{Coding, Fault, Fields, Framing, HEAD_MAX, Header, elements};
use std::net::Ipv6Addr;

/// Methods of RFC 9110 §9 and RFC 5789.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A request with a whole, valid head and unambiguous framing.
#[derive(Clone, Copy, Debug)]
pub struct Request<'f, 'b> {
    /// Method, as written in the request.
    pub method: &'b str,
    /// Host and port of the target, or else of the field; empty if neither names one.
    pub host: &'b str,
    /// Path without the query; also `*` and the authority of a `CONNECT`.
    pub path: &'b str,
    /// Part of the target behind the first `?`.
    pub query: &'b str,
    /// Length of the head in bytes.
    pub length: usize,
    /// The bytes behind the head are content.
    pub has_content: bool,
    /// The connection ends with the answer: the client requests it, or the bytes after the head are
    /// no request.
    pub closes_connection: bool,
    fields: &'f [Header<'b>],
}

impl<'b> Request<'_, 'b> {
    /// Values of a field, in the order of the head.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// Rejection by a port that only serves `GET` without content; `None` for such a request.
    pub fn refusal(&self) -> Option<Fault> {
        match self.method {
            "GET" => self.has_content.then_some(Fault::Content),
            method if METHODS.contains(&method) => Some(Fault::Method),
            _ => Some(Fault::Unimplemented),
        }
    }
}

/// Parses the head of the request at the beginning of `bytes`; `None` until the head is whole.
///
/// # Errors
/// The connection must end with the fault's answer.
pub fn request<'f, 'b>(bytes: &'b [u8], fields: &'f mut Fields<'b>) -> Result<Option<Request<'f, 'b>>, Fault> {
    let mut head = httparse::Request::new(fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Fault::TooLarge),
        Err(httparse::Error::Version) if names_version(bytes) => return Err(Fault::Version),
        Err(_) => return Err(Fault::Malformed),
    };
    let fields: &[Header<'b>] = head.headers;
    let (Some(method), Some(target)) = (head.method, head.path) else { return Err(Fault::Malformed) };
    // The parser accepts a line end without CR, which RFC 9112 §2.2 leaves open. A stricter proxy
    // would see another message.
    if has_bare_newline(bytes.get(..length).unwrap_or_default()) {
        return Err(Fault::Malformed);
    }
    let is_old = head.version == Some(0);
    let (mut framing, mut host, mut closes, mut keeps) = (Framing::default(), None, false, false);
    for field in fields {
        framing.add(field)?;
        if field.name.eq_ignore_ascii_case("host") {
            let value = str::from_utf8(field.value).ok().filter(|value| value.is_empty() || is_authority(value));
            if host.replace(value.ok_or(Fault::Malformed)?).is_some() {
                return Err(Fault::Malformed);
            }
        } else if field.name.eq_ignore_ascii_case("connection") {
            closes |= elements(field.value).any(|option| option.eq_ignore_ascii_case(b"close"));
            keeps |= elements(field.value).any(|option| option.eq_ignore_ascii_case(b"keep-alive"));
        }
    }
    // RFC 9112 §3.2.
    if host.is_none() && !is_old {
        return Err(Fault::Malformed);
    }
    let has_content = match framing.coding {
        Coding::None => framing.length.is_some_and(|length| length > 0),
        // RFC 9112 §6.1: a length beside a coding, and a coding in HTTP/1.0, are signs of
        // smuggling.
        _ if framing.length.is_some() || is_old => return Err(Fault::Malformed),
        Coding::Chunked => true,
        Coding::OthersThenChunked => return Err(Fault::Unimplemented),
        Coding::NotChunked => return Err(Fault::Malformed),
    };
    let (authority, path, query) = target_parts(method, target).ok_or(Fault::Malformed)?;
    Ok(Some(Request {
        method,
        host: authority.or(host).unwrap_or_default(),
        path,
        query,
        length,
        has_content,
        // The bytes after a CONNECT are meant for a tunnel.
        closes_connection: closes || (is_old && !keeps) || has_content || method == "CONNECT",
        fields,
    }))
}

/// Whether the third word of the request line looks like an HTTP version.
fn names_version(bytes: &[u8]) -> bool {
    let word = bytes.split(|byte| *byte == b' ').nth(2).unwrap_or_default();
    word.strip_prefix(b"HTTP/").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
}

fn has_bare_newline(head: &[u8]) -> bool {
    head.starts_with(b"\n") || head.windows(2).any(|pair| matches!(pair, [before, b'\n'] if *before != b'\r'))
}

/// Authority, path and query of a target in one of the four forms (RFC 9112 §3.2).
fn target_parts<'b>(method: &str, target: &'b str) -> Option<(Option<&'b str>, &'b str, &'b str)> {
    if method == "CONNECT" {
        return (is_authority(target) && target.contains(':')).then_some((Some(target), target, ""));
    }
    if target == "*" {
        return (method == "OPTIONS").then_some((None, target, ""));
    }
    let (authority, rest) = if target.starts_with('/') {
        (None, target)
    } else {
        let (scheme, rest) = target.split_once("://")?;
        let is_ours = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        (Some(authority).filter(|authority| is_ours && is_authority(authority))?.into(), rest)
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Some((authority, if path.is_empty() { "/" } else { path }, query))
}

/// Whether this is a host with or without a port (RFC 9110 §7.2). A comma is invalid in a name
/// here: a proxy may have joined two fields.
fn is_authority(text: &str) -> bool {
    let (is_host, rest) = match text.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((address, rest)) => {
                // Some clients leave in the zone, which only concerns the client itself.
                let (address, zone) = address.split_once('%').unwrap_or((address, "0"));
                let is_zone = zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
                (is_zone && address.parse::<Ipv6Addr>().is_ok(), rest)
            }
            None => return false,
        },
        None => {
            let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (!name.is_empty() && is_name(name.as_bytes()), rest)
        }
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    is_host && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

fn is_name(name: &[u8]) -> bool {
    let is_escaped = |rest: &[u8]| matches!(rest, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    name.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => is_escaped(name.get(at + 1..).unwrap_or_default()),
        byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(byte),
    })
}
