//! Recognizes a server's protocol by its first bytes. Pure: the caller reads them. Does not contain
//! the protocols of clients.

use std::fmt;

use super::header::{MAGIC, Version};

/// Protocol of a server, recognized by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerProtocol {
    /// The protocol of this crate.
    Leeward,
    /// HTTP/1, or the settings with which a server begins HTTP/2.
    Http,
    /// A TLS record: a handshake, or the alert that ends one.
    Tls,
    /// memcached's text protocol.
    Memcached,
    /// The protocol of Redis.
    Redis,
    /// The identification line of SSH.
    Ssh,
}

/// Beginnings of lines that servers answer, or send on their own. Sources: RFC 9112 §4; memcached's
/// protocol.txt; Redis' protocol specification, errors; RFC 4253 §4.2.
const LINES: [(&[u8], ServerProtocol); 11] = [
    (b"HTTP/1.", ServerProtocol::Http),
    (b"ERROR\r\n", ServerProtocol::Memcached),
    (b"CLIENT_ERROR ", ServerProtocol::Memcached),
    (b"SERVER_ERROR ", ServerProtocol::Memcached),
    (b"VERSION ", ServerProtocol::Memcached),
    (b"STAT ", ServerProtocol::Memcached),
    (b"END\r\n", ServerProtocol::Memcached),
    (b"-ERR ", ServerProtocol::Redis),
    (b"-NOAUTH ", ServerProtocol::Redis),
    (b"-DENIED ", ServerProtocol::Redis),
    (b"SSH-", ServerProtocol::Ssh),
];

impl ServerProtocol {
    /// The protocol of a server with these first bytes; `None` if they are too few or unknown.
    pub fn detect(first: &[u8]) -> Option<ServerProtocol> {
        let [low, high] = MAGIC.to_le_bytes();
        match *first {
            [a, b, version, ..] if (a, b) == (low, high) && Version::from_number(version).is_some() => {
                Some(ServerProtocol::Leeward)
            }
            // RFC 8446 §5.1: alert or handshake, and a version; all since SSL 3.0 keep it below
            // 3.4.
            [0x15 | 0x16, 3, 0..=4, ..] => Some(ServerProtocol::Tls),
            // RFC 9113 §6.5: SETTINGS of stream 0, without ACK.
            [0, 0, _, 4, 0, 0, 0, 0, 0, ..] => Some(ServerProtocol::Http),
            _ => LINES.iter().find(|(line, _)| first.starts_with(line)).map(|(_, protocol)| *protocol),
        }
    }
}

impl fmt::Display for ServerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerProtocol::Leeward => "Leeward's protocol",
            ServerProtocol::Http => "HTTP",
            ServerProtocol::Tls => "TLS",
            ServerProtocol::Memcached => "memcached's protocol",
            ServerProtocol::Redis => "Redis' protocol",
            ServerProtocol::Ssh => "SSH",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_first_bytes() {
        for (first, protocol) in [
            (&b"LW\x01\x0a"[..], Some(ServerProtocol::Leeward)),
            (b"LW\x02\x02\0\0\0\0", Some(ServerProtocol::Leeward)),
            (b"HTTP/1.1 400 Bad Request\r\n", Some(ServerProtocol::Http)),
            (b"HTTP/1.0 ", Some(ServerProtocol::Http)),
            (b"\0\0\x12\x04\0\0\0\0\0\0\x03", Some(ServerProtocol::Http)),
            (b"\x15\x03\x01\0\x02\x02\x46", Some(ServerProtocol::Tls)),
            (b"\x16\x03\x03\0\x7a", Some(ServerProtocol::Tls)),
            (b"ERROR\r\n", Some(ServerProtocol::Memcached)),
            (b"VERSION 1.6.18\r\n", Some(ServerProtocol::Memcached)),
            (b"CLIENT_ERROR bad data chunk\r\n", Some(ServerProtocol::Memcached)),
            (b"-ERR unknown command 'version'\r\n", Some(ServerProtocol::Redis)),
            (b"-NOAUTH Authentication required.\r\n", Some(ServerProtocol::Redis)),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(ServerProtocol::Ssh)),
        ] {
            assert_eq!(ServerProtocol::detect(first), protocol, "{first:?}");
        }
        let others = [
            &b""[..],
            b"L",
            b"LW",
            b"LW\x03\x02",
            b"HTTP",
            b"HTTQ/1.1",
            b"ERROR",
            b"\x15\x03\x09",
            b"\x14\x03\x01",
            b"220 mail\r\n",
        ];
        for first in others {
            assert_eq!(ServerProtocol::detect(first), None, "{first:?}");
        }
    }
}
