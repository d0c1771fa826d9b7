//! Recognizes a client's protocol by its first bytes, so that a port can name the protocol of a
//! peer that speaks another one.

use super::header::MAGIC;
use std::fmt;

/// First bytes of a connection in version 2 of the PROXY protocol.
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];
/// Commands with which memcached's clients begin.
const COMMANDS: [&[u8]; 14] = [
    b"get ",
    b"gets ",
    b"gat ",
    b"gats ",
    b"set ",
    b"add ",
    b"delete ",
    b"mg ",
    b"ms ",
    b"mn\r\n",
    b"version\r\n",
    b"stats",
    b"incr ",
    b"touch ",
];

/// Protocol of a peer, recognized by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientProtocol {
    /// A request of HTTP/1.
    Http,
    /// The preface of HTTP/2.
    Http2,
    /// A ClientHello of TLS, or another TLS record.
    Tls,
    /// memcached's text protocol.
    Memcached,
    /// memcached's binary protocol.
    MemcachedBinary,
    /// A command of Redis, in RESP.
    Redis,
    /// A load balancer's header with the client's address (PROXY protocol, version 1 or 2).
    Proxy,
    /// Leeward's protocol over TCP.
    Leeward,
    /// Leeward's protocol over UDP.
    LeewardDatagram,
}

impl ClientProtocol {
    /// The protocol that begins with `bytes`; `None` if they are too few or unknown. Does not check
    /// that the bytes are well-formed.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let begins_with = |beginning: &&[u8]| bytes.starts_with(beginning);
        // A target begins with a slash, or is `*` or a whole address.
        let is_target = |method: &&[u8]| matches!(bytes.get(method.len()), Some(b'/' | b'*' | b'h'));
        match bytes {
            [0x14..=0x17, 3, ..] => Some(ClientProtocol::Tls),
            [0x80, ..] => Some(ClientProtocol::MemcachedBinary),
            [b'*', b'0'..=b'9', ..] => Some(ClientProtocol::Redis),
            [b'L', b'U', ..] => Some(ClientProtocol::LeewardDatagram),
            _ if bytes.starts_with(&MAGIC.to_le_bytes()) => Some(ClientProtocol::Leeward),
            _ if bytes.starts_with(b"PROXY ") || bytes.starts_with(PROXY_V2) => Some(ClientProtocol::Proxy),
            _ if bytes.starts_with(b"PRI * HTTP/2") => Some(ClientProtocol::Http2),
            _ if METHODS.iter().filter(|method| begins_with(method)).any(is_target) => Some(ClientProtocol::Http),
            _ if COMMANDS.iter().any(begins_with) => Some(ClientProtocol::Memcached),
            _ => None,
        }
    }

    /// Whether `bytes` may begin a PROXY header of version 2, whose signature is longer than one
    /// line.
    pub fn is_proxy_prefix(bytes: &[u8]) -> bool {
        (3..PROXY_V2.len()).contains(&bytes.len()) && PROXY_V2.starts_with(bytes)
    }
}

impl fmt::Display for ClientProtocol {
    /// Writes the protocol's usual name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientProtocol::Http => "HTTP/1",
            ClientProtocol::Http2 => "HTTP/2",
            ClientProtocol::Tls => "TLS",
            ClientProtocol::Memcached => "memcached's text protocol",
            ClientProtocol::MemcachedBinary => "memcached's binary protocol",
            ClientProtocol::Redis => "the protocol of Redis",
            ClientProtocol::Proxy => "the PROXY protocol",
            ClientProtocol::Leeward => "Leeward's protocol",
            ClientProtocol::LeewardDatagram => "Leeward's protocol over UDP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_testkit::greetings::GREETINGS;

    #[test]
    fn greetings_identify_their_protocol() {
        for (name, bytes) in GREETINGS {
            let protocol = ClientProtocol::detect(bytes).unwrap_or_else(|| panic!("{name} is not told"));
            assert_eq!(protocol.to_string(), name);
        }
    }

    #[test]
    fn other_bytes_match_no_protocol() {
        for bytes in [&b""[..], b"G", b"GET", b"GET a\r\n", b"bogus\r\n", b"\r\n", b"\0\0", b"P", b"hello"] {
            assert_eq!(ClientProtocol::detect(bytes), None, "{bytes:?}");
        }
        assert!(
            ClientProtocol::is_proxy_prefix(b"\r\n\r\n\0")
                && !ClientProtocol::is_proxy_prefix(b"\r\n")
                && !ClientProtocol::is_proxy_prefix(b"\r\nm")
        );
    }
}
