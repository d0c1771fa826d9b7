//! Address of a backend. Does not contain connections.

use std::fmt;
use std::str::FromStr;

/// Host and port of a backend. A name is looked up when a connection is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    host: String,
    port: u16,
}

/// Error: the text is no address of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no backend; expected HOST:PORT, such as `127.0.0.1:3000`")]
pub struct ParseAddressError(String);

impl FromStr for BackendAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let wrong = || ParseAddressError(text.chars().take(80).collect());
        let text_without_scheme = text.strip_prefix("http://").map_or(text, |rest| rest.trim_end_matches('/'));
        let (host, port) = text_without_scheme.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
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
        Ok(BackendAddress { host: host.into(), port })
    }
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl BackendAddress {
    /// Host and port, as Tokio connects to them.
    pub(crate) fn target(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, shown) in [
            ("127.0.0.1:3000", "127.0.0.1:3000"),
            (":3000", "127.0.0.1:3000"),
            ("api.internal:80", "api.internal:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("http://10.0.0.1:8080/", "10.0.0.1:8080"),
        ] {
            assert_eq!(text.parse::<BackendAddress>().map(|address| address.to_string()), Ok(shown.into()), "{text}");
        }
        for wrong in
            ["", "3000", "host", "host:", "host:0", "host:70000", "[zz]:1", "a b:1", "https://host:1", "::1:80x"]
        {
            assert!(wrong.parse::<BackendAddress>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn an_address_survives_its_own_text(text in ".{0,24}") {
            if let Ok(address) = text.parse::<BackendAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
