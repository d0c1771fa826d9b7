//! Targets of requests: URLs with weights, and the endpoints to which connections are opened.

use std::fmt;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// A server's host and port, and whether connections to it are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether the URL begins with `https`.
    pub is_encrypted: bool,
    /// Host name or address, without the brackets of IPv6.
    pub host: String,
    /// Port; by default that of the scheme.
    pub port: u16,
}

impl Endpoint {
    /// Host and port for resolvers, such as `localhost:80` or `[::1]:80`.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    /// Value of the `host` header: without the scheme's default port.
    pub fn authority(&self) -> String {
        let default = if self.is_encrypted { 443 } else { 80 };
        if self.port == default { self.bracketed_host() } else { self.host_and_port() }
    }

    fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// A URL with its weight in the mix of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Server of the URL.
    pub endpoint: Endpoint,
    /// Path and query.
    pub path: PathAndQuery,
    /// Weight, above 0.
    pub weight: f64,
}

/// Error of a text that is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The URL is malformed, or has no host.
    #[error("`{0}` is no URL such as http://127.0.0.1:8080/path")]
    Url(String),
    /// The scheme is not http or https.
    #[error("`{0}`: the scheme must be http or https")]
    Scheme(String),
    /// The URL contains a user or a password.
    #[error("a URL with a user or password is not accepted; send an `authorization` header")]
    User,
    /// The weight is not a number above 0.
    #[error("`{0}` is no weight: it must be a number above 0 behind the URL, such as 'http://127.0.0.1:8080/ 3'")]
    Weight(String),
}

impl Target {
    /// Parses a URL, or a URL, a blank and a weight. The weight is 1 by default.
    ///
    /// # Errors
    /// The part that is wrong.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let mut words = text.split_ascii_whitespace();
        let url = words.next().unwrap_or_default();
        let weight = match (words.next(), words.next()) {
            (None, _) => 1.0,
            (Some(written), None) => {
                let parsed = written.parse().ok().filter(|weight: &f64| *weight > 0.0 && weight.is_finite());
                parsed.ok_or_else(|| TargetError::Weight(shorten(written)))?
            }
            (_, Some(_)) => return Err(TargetError::Weight(shorten(text))),
        };
        let (endpoint, path) = parse_url(url)?;
        Ok(Target { endpoint, path, weight })
    }
}

fn parse_url(url: &str) -> Result<(Endpoint, PathAndQuery), TargetError> {
    let malformed = || TargetError::Url(shorten(url));
    let uri: Uri = url.parse().map_err(|_| malformed())?;
    let (scheme, authority) = (uri.scheme().ok_or_else(malformed)?, uri.authority().ok_or_else(malformed)?);
    if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
        return Err(TargetError::Scheme(shorten(url)));
    }
    if authority.as_str().contains('@') {
        return Err(TargetError::User);
    }
    let is_encrypted = *scheme == Scheme::HTTPS;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
    // An authority with a port that is no number has no `port_u16`, but text behind the host.
    let has_port = authority.as_str().len() > authority.host().len();
    let port = match authority.port_u16() {
        Some(0) => return Err(malformed()),
        Some(port) => port,
        None if has_port => return Err(malformed()),
        None if is_encrypted => 443,
        None => 80,
    };
    if host.is_empty() {
        return Err(malformed());
    }
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok((Endpoint { is_encrypted, host, port }, path))
}

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_weights_are_parsed() {
        let check = |text: &str, endpoint: &str, socket: &str, path: &str, weight: f64| {
            let target = Target::parse(text).unwrap();
            let found = (target.endpoint.to_string(), target.endpoint.host_and_port());
            assert_eq!(found, (endpoint.to_string(), socket.to_string()), "{text}");
            assert_eq!((target.path.as_str(), target.weight), (path, weight), "{text}");
        };
        check("http://localhost", "http://localhost", "localhost:80", "/", 1.0);
        check("https://a.example/x?y=1#part", "https://a.example", "a.example:443", "/x?y=1", 1.0);
        check("http://[::1]:8080/ 2.5", "http://[::1]:8080", "[::1]:8080", "/", 2.5);
        check("  http://127.0.0.1:8080/a   3 ", "http://127.0.0.1:8080", "127.0.0.1:8080", "/a", 3.0);
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in
            ["", "localhost:80", "/path", "http://", "http://:80/", "http://a:0/", "http://a:99999/", "http://a:x/"]
        {
            assert!(matches!(Target::parse(text), Err(TargetError::Url(_))), "{text}: {:?}", Target::parse(text));
        }
        assert!(matches!(Target::parse("ftp://a/"), Err(TargetError::Scheme(_))));
        assert!(matches!(Target::parse("http://u:p@a/"), Err(TargetError::User)));
        for text in ["http://a/ 0", "http://a/ -1", "http://a/ x", "http://a/ inf", "http://a/ 1 2"] {
            assert!(matches!(Target::parse(text), Err(TargetError::Weight(_))), "{text}");
        }
    }
}
