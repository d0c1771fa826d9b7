//! Address of a backend. Does not contain connections.

use crate::transport::address::{LocalAddress, UNIX, socket_path};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;

/// Host and port of a backend, or the path of its Unix socket. A name is looked up when a
/// connection is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    target: Target,
    is_tls: bool,
    /// Whether it speaks HTTP/2 without being asked.
    is_http2: bool,
}

/// What a connection is opened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Error: the text is no address of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no backend; expected HOST:PORT, https://HOST:PORT, h2c://HOST:PORT (HTTP/2 without TLS) or unix:/PATH, such as `127.0.0.1:3000`"
)]
pub struct ParseAddressError(String);

/// Scheme of HTTP/2 without TLS, as other proxies spell it.
const H2C: &str = "h2c://";
/// Port of `https://HOST`.
const HTTPS: u16 = 443;

impl FromStr for BackendAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let wrong = || ParseAddressError(text.chars().take(80).collect());
        let of_http2 = text.strip_prefix(H2C);
        let (is_http2, text) = (of_http2.is_some(), of_http2.unwrap_or(text));
        if let Some(path) = text.strip_prefix(UNIX) {
            let path = socket_path(path).map_err(|_| wrong())?;
            return Ok(BackendAddress { target: Target::Unix(path), is_tls: false, is_http2 });
        }
        let (is_tls, authority) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(_), _) | (_, Some(_)) if is_http2 => return Err(wrong()),
            (Some(rest), _) => (true, rest.strip_suffix('/').unwrap_or(rest)),
            (_, Some(rest)) => (false, rest.strip_suffix('/').unwrap_or(rest)),
            _ if is_http2 => (false, text.strip_suffix('/').unwrap_or(text)),
            _ => (false, text),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)
            }
            _ if is_tls && !authority.is_empty() => (authority, HTTPS),
            _ => return Err(wrong()),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => host,
            Some(_) => return Err(wrong()),
            // `:3000` is this machine, as for listeners.
            None if host.is_empty() => "127.0.0.1",
            None => host,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if bare.is_none() && !host.bytes().all(is_name) {
            return Err(wrong());
        }
        Ok(BackendAddress { target: Target::Tcp { host: host.into(), port }, is_tls, is_http2 })
    }
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.is_tls, self.is_http2) {
            (true, _) => "https://",
            (false, true) => H2C,
            (false, false) => "",
        };
        match &self.target {
            Target::Tcp { host, port } if host.contains(':') => write!(f, "{scheme}[{host}]:{port}"),
            Target::Tcp { host, port } => write!(f, "{scheme}{host}:{port}"),
            Target::Unix(path) => write!(f, "{scheme}{UNIX}{}", path.display()),
        }
    }
}

impl BackendAddress {
    /// What a connection is opened to.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether it speaks HTTP/2 without being asked: prior knowledge (RFC 9113 §3.3).
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Whether it is the proxy that listens on `own`: each request would go round until its head
    /// is too long. Of names only `localhost` is known here; others are looked up later.
    pub(crate) fn is_proxy_itself(&self, own: &LocalAddress) -> bool {
        match (&self.target, own) {
            (Target::Unix(path), LocalAddress::Unix(own)) => path == own,
            (Target::Tcp { host, port }, LocalAddress::Tcp(own)) if *port == own.port() => {
                let is_own = |ip: IpAddr| {
                    // A connection to the unspecified address is one to this machine.
                    let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { ip };
                    let accepts_family = own.is_ipv6() || ip.is_ipv4();
                    ip == own.ip() || own.ip().is_unspecified() && accepts_family && is_of_this_machine(ip)
                };
                if host.eq_ignore_ascii_case("localhost") {
                    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into_iter().any(is_own)
                } else {
                    host.parse().is_ok_and(is_own)
                }
            }
            _ => false,
        }
    }

    /// Whether it has a name, which may get another address at any time.
    pub(crate) fn is_name(&self) -> bool {
        self.host().is_some_and(|host| host.parse::<IpAddr>().is_err())
    }

    /// The host, without brackets; `None`: it is a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.target {
            Target::Tcp { host, .. } => Some(host),
            Target::Unix(_) => None,
        }
    }
}

/// The system binds sockets to addresses of this machine only.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_has_a_host_and_a_port_or_a_path() {
        for (text, shown) in [
            ("127.0.0.1:3000", "127.0.0.1:3000"),
            (":3000", "127.0.0.1:3000"),
            ("api.internal:80", "api.internal:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("http://10.0.0.1:8080/", "10.0.0.1:8080"),
            ("https://api.internal", "https://api.internal:443"),
            ("https://[::1]/", "https://[::1]:443"),
            ("https://10.0.0.1:8443", "https://10.0.0.1:8443"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("h2c://10.0.0.1:8080/", "h2c://10.0.0.1:8080"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
            ("h2c://unix:/run/app.sock", "h2c://unix:/run/app.sock"),
        ] {
            assert_eq!(text.parse::<BackendAddress>().map(|address| address.to_string()), Ok(shown.into()), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(108));
        let wrong = [
            "",
            "3000",
            "host",
            "host:",
            "host:0",
            "host:70000",
            "[zz]:1",
            "a b:1",
            "::1:80x",
            "[::1]",
            "https://",
            "https:///",
            "https://a/b",
            "http://a",
            "ftp://a:1",
            "h2://a:1",
            "h2c://",
            "h2c://a",
            "h2c://https://a:1",
            "h2c://h2c://a:1",
            "unix:",
            "unix:app.sock",
            "unix:/a\"b",
            "unix:/a\nb",
            "unix:/a\\b",
            &long,
        ];
        for wrong in wrong {
            assert!(wrong.parse::<BackendAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_proxy_is_not_its_own_backend() {
        let is_itself = |backend: &str, own: LocalAddress| {
            backend.parse::<BackendAddress>().unwrap_or_else(|error| panic!("{error}")).is_proxy_itself(&own)
        };
        let tcp = |own: &str| LocalAddress::Tcp(own.parse().unwrap());
        for backend in
            [":80", "127.0.0.1:80", "localhost:80", "0.0.0.0:80", "http://127.0.0.1:80/", "h2c://127.0.0.1:80"]
        {
            assert!(is_itself(backend, tcp("127.0.0.1:80")), "{backend}");
            assert!(is_itself(backend, tcp("0.0.0.0:80")), "{backend}");
            assert!(is_itself(backend, tcp("[::]:80")), "{backend}");
            assert!(!is_itself(backend, tcp("127.0.0.1:81")), "{backend}");
            assert!(!is_itself(backend, tcp("127.0.0.2:80")), "{backend}");
        }
        assert!(is_itself("127.0.0.2:80", tcp("0.0.0.0:80")));
        // An address for documentation: of no machine.
        assert!(!is_itself("192.0.2.1:80", tcp("0.0.0.0:80")));
        assert!(!is_itself("[::1]:80", tcp("0.0.0.0:80")));
        assert!(!is_itself("api.internal:80", tcp("0.0.0.0:80")));
        assert!(is_itself("unix:/run/p.sock", LocalAddress::Unix("/run/p.sock".into())));
        assert!(!is_itself("unix:/run/q.sock", LocalAddress::Unix("/run/p.sock".into())));
    }

    proptest! {
        #[test]
        fn an_address_survives_its_own_text(text in "(h2c://)?(https?://|unix:/)?.{0,24}") {
            if let Ok(address) = text.parse::<BackendAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
