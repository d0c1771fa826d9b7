//! What to watch, as the command line names it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use leeward_sockdiag::Namespace;

use crate::error::WatchError;

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// Unix socket: a path, or `@name` for an abstract name.
    Unix(String),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(name) => write!(f, "unix:{}", one_line(name)),
        }
    }
}

/// Listeners to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTarget {
    /// Only listeners on this port.
    pub(crate) port: Option<u16>,
    /// Only listeners that take connections for this address.
    pub(crate) host: Option<IpAddr>,
    /// Only this Unix socket.
    pub(crate) unix: Option<String>,
    /// Only listeners of this process and its children.
    pub(crate) pid: Option<u32>,
    /// Network namespace.
    pub(crate) namespace: Namespace,
}

impl WatchTarget {
    /// All listeners of this network namespace.
    pub fn all() -> WatchTarget {
        WatchTarget { port: None, host: None, unix: None, pid: None, namespace: Namespace::Own }
    }

    /// Reads `:8080`, `8080`, `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `/run/x.sock`,
    /// `unix:/run/x.sock` or `@name`.
    ///
    /// # Errors
    /// Another text.
    pub fn parse(text: &str) -> Result<WatchTarget, WatchError> {
        let wrong = || WatchError::Address(text.into());
        let all = WatchTarget::all();
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(WatchTarget { unix: Some(path.into()), ..all });
        }
        if text.starts_with(['/', '@']) && text.len() > 1 {
            return Ok(WatchTarget { unix: Some(text.into()), ..all });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            let host = Some(address.ip()).filter(|ip| !ip.is_unspecified());
            return Ok(WatchTarget { host, port: Some(port(address.port()).ok_or_else(wrong)?), ..all });
        }
        let (host, number) = text.rsplit_once(':').unwrap_or(("", text));
        let number = number.parse().ok().and_then(port).ok_or_else(wrong)?;
        let host = match host {
            "" | "*" => None,
            "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
            _ => return Err(wrong()),
        };
        Ok(WatchTarget { host, port: Some(number), ..all })
    }

    /// Only the listeners of a process and its children, in the process's network namespace.
    #[must_use]
    pub fn of_process(self, pid: u32) -> WatchTarget {
        let namespace = if self.namespace == Namespace::Own { Namespace::OfProcess(pid) } else { self.namespace };
        WatchTarget { pid: Some(pid), namespace, ..self }
    }

    /// In another network namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: Namespace) -> WatchTarget {
        WatchTarget { namespace, ..self }
    }

    /// Whether a listener on `address` is meant.
    pub(crate) fn selects(&self, address: &ListenAddress) -> bool {
        match address {
            ListenAddress::Tcp(address) => {
                let host = self.host.is_none_or(|host| host == address.ip() || address.ip().is_unspecified());
                self.unix.is_none() && self.port.is_none_or(|port| port == address.port()) && host
            }
            ListenAddress::Unix(name) => match &self.unix {
                Some(wanted) => wanted == name,
                None => self.port.is_none(),
            },
        }
    }
}

impl fmt::Display for WatchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host, self.port, &self.unix) {
            (_, _, Some(name)) => write!(f, "unix:{name}"),
            (Some(host), Some(port), None) => SocketAddr::new(host, port).fmt(f),
            (None, Some(port), None) => write!(f, ":{port}"),
            _ => f.write_str("any port"),
        }
    }
}

/// A name that others chose, which must not look like a line of a report.
pub(crate) fn one_line(name: &str) -> String {
    name.replace(char::is_control, "?")
}

/// A port that can be listened on.
fn port(number: u16) -> Option<u16> {
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_the_usual_forms() {
        for (text, expected) in [
            (":8080", ":8080"),
            ("8080", ":8080"),
            ("*:8080", ":8080"),
            ("0.0.0.0:8080", ":8080"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("/run/x.sock", "unix:/run/x.sock"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("@name", "unix:@name"),
        ] {
            assert_eq!(WatchTarget::parse(text).unwrap().to_string(), expected, "{text}");
        }
        for text in
            ["", ":", ":0", "127.0.0.1:0", "host", "host:", "example.com:80", ":65536", "-1", "unix:", "/", "[::1]"]
        {
            assert!(WatchTarget::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_no_line_of_its_own() {
        let name = ListenAddress::Unix("@x\n:80 (nginx 1): nothing waits".into());
        assert_eq!(name.to_string(), "unix:@x?:80 (nginx 1): nothing waits");
    }

    #[test]
    fn a_listener_for_all_addresses_takes_connections_for_one() {
        let one = WatchTarget::parse("127.0.0.1:80").unwrap();
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        assert!(one.selects(&tcp("0.0.0.0:80")) && one.selects(&tcp("[::]:80")) && one.selects(&tcp("127.0.0.1:80")));
        assert!(!one.selects(&tcp("10.0.0.1:80")) && !one.selects(&tcp("0.0.0.0:81")));
        assert!(
            !one.selects(&ListenAddress::Unix("/x".into()))
                && WatchTarget::all().selects(&ListenAddress::Unix("/x".into()))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = WatchTarget::parse(&text);
        }
    }
}
