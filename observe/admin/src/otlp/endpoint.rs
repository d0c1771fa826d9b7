//! Address of an OTLP receiver: `http://HOST[:PORT][/PATH]`. Does not contain connections.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Default port of OTLP over HTTP.
const DEFAULT_PORT: u16 = 4318;
/// Default path of the metrics.
const DEFAULT_PATH: &str = "/v1/metrics";
/// Longest address that is accepted, in bytes.
const URL_MAX: usize = 1_024;

/// Address of a receiver of OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// Host name or address, without brackets.
    host: String,
    port: u16,
    path: String,
}

/// Error: the text is not the address of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{input}`: {problem}; accepted: http://HOST[:PORT][/PATH], such as http://127.0.0.1:4318/v1/metrics")]
pub struct ParseEndpointError {
    input: String,
    problem: &'static str,
}

impl OtlpEndpoint {
    /// Host and port for name resolution.
    pub(super) fn host_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Value of the `Host` field.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for OtlpEndpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        let plain = |letter: char| if letter.is_control() { '?' } else { letter };
        let wrong = |problem| ParseEndpointError { input: text.chars().take(100).map(plain).collect(), problem };
        if text.len() > URL_MAX {
            return Err(wrong("longer than 1,024 bytes"));
        }
        if text.starts_with("https://") {
            return Err(wrong("exports are not encrypted; let a collector on this machine forward them"));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| wrong("no http:// at the beginning"))?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['"', '<', '>', '\\', '#']) {
            return Err(wrong("a character that no address has"));
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |index| rest.split_at(index));
        if authority.contains(['@', '?']) {
            return Err(wrong("no password, and no question before the path"));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
            None => {
                let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
                (host, Some(port))
            }
        };
        if host.is_empty() {
            return Err(wrong("no host"));
        }
        let port = match port {
            Some("") => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("no port, 1 to 65535"))?,
            None => return Err(wrong("no port, 1 to 65535")),
        };
        let path = if matches!(path, "" | "/") { DEFAULT_PATH } else { path };
        Ok(OtlpEndpoint { host: host.into(), port, path: path.into() })
    }
}

impl Display for OtlpEndpoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_endpoints_are_parsed_and_others_rejected_in_one_line() {
        for (text, read) in [
            ("http://127.0.0.1:4318/v1/metrics", "http://127.0.0.1:4318/v1/metrics"),
            ("http://collector", "http://collector:4318/v1/metrics"),
            ("http://collector:80/", "http://collector:80/v1/metrics"),
            ("http://[::1]:9090/api/v1/otlp/v1/metrics", "http://[::1]:9090/api/v1/otlp/v1/metrics"),
            ("http://[::1]", "http://[::1]:4318/v1/metrics"),
            ("http://a/x?y=z", "http://a:4318/x?y=z"),
        ] {
            assert_eq!(text.parse::<OtlpEndpoint>().unwrap().to_string(), read);
        }
        for (text, problem) in [
            ("127.0.0.1:4318", "no http://"),
            ("https://a", "not encrypted"),
            ("http://", "no host"),
            ("http://:4318", "no host"),
            ("http://a:0", "no port"),
            ("http://a:99999", "no port"),
            ("http://a:1:2", "no port"),
            ("http://[::1]x", "no port"),
            ("http://me:secret@a/", "no password"),
            ("http://a/\r\nx: y", "a character"),
            ("http://a b/", "a character"),
        ] {
            let error = text.parse::<OtlpEndpoint>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("accepted: http://") && !error.contains('\n'), "{error}");
        }
        assert!(format!("http://{}", "a".repeat(2_000)).parse::<OtlpEndpoint>().is_err());
    }

    proptest! {
        #[test]
        fn endpoints_round_trip_through_text(text in "http://[a-z0-9.:@/\\[\\]]{0,40}") {
            if let Ok(receiver) = text.parse::<OtlpEndpoint>() {
                prop_assert_eq!(receiver.to_string().parse::<OtlpEndpoint>().unwrap(), receiver);
            }
        }
    }
}
