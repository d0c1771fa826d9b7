//! Protocols told apart by their first bytes, so that a port can name a peer that has come to the wrong one.

use super::header::MAGIC;
use std::fmt;

/// First bytes of a connection in version 2 of the PROXY protocol.
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];
/// memcached's commands that clients begin with.
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

/// Protocol that a peer speaks, as its first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Greeting {
    /// A request of HTTP/1.
    Http,
    /// The preface of HTTP/2.
    Http2,
    /// A ClientHello of TLS, or what else begins a record of its.
    Tls,
    /// memcached's text protocol.
    Memcached,
    /// memcached's binary protocol.
    MemcachedBinary,
    /// A command of Redis, in RESP.
    Redis,
    /// A header of a load balancer that tells the client's address (PROXY protocol, version 1 or 2).
    Proxy,
    /// Leeward's protocol over TCP.
    Leeward,
    /// Leeward's protocol over UDP.
    LeewardDatagram,
}

impl Greeting {
    /// The protocol that begins with `bytes`, if they are enough to tell. A pure guess: whether they are well-formed is
    /// for the protocol itself to say.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let begins_with = |beginning: &&[u8]| bytes.starts_with(beginning);
        // A target begins with a slash, or is `*` or a whole address.
        let is_target = |method: &&[u8]| matches!(bytes.get(method.len()), Some(b'/' | b'*' | b'h'));
        match bytes {
            [0x14..=0x17, 3, ..] => Some(Greeting::Tls),
            [0x80, ..] => Some(Greeting::MemcachedBinary),
            [b'*', b'0'..=b'9', ..] => Some(Greeting::Redis),
            [b'L', b'U', ..] => Some(Greeting::LeewardDatagram),
            _ if bytes.starts_with(&MAGIC.to_le_bytes()) => Some(Greeting::Leeward),
            _ if bytes.starts_with(b"PROXY ") || bytes.starts_with(PROXY_V2) => Some(Greeting::Proxy),
            _ if bytes.starts_with(b"PRI * HTTP/2") => Some(Greeting::Http2),
            _ if METHODS.iter().filter(|method| begins_with(method)).any(is_target) => Some(Greeting::Http),
            _ if COMMANDS.iter().any(begins_with) => Some(Greeting::Memcached),
            _ => None,
        }
    }

    /// Whether `bytes` may be the beginning of one that is told by more of them than one line.
    pub fn may_follow(bytes: &[u8]) -> bool {
        (3..PROXY_V2.len()).contains(&bytes.len()) && PROXY_V2.starts_with(bytes)
    }
}

impl fmt::Display for Greeting {
    /// Names the protocol as its users do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Greeting::Http => "HTTP/1",
            Greeting::Http2 => "HTTP/2",
            Greeting::Tls => "TLS",
            Greeting::Memcached => "memcached's text protocol",
            Greeting::MemcachedBinary => "memcached's binary protocol",
            Greeting::Redis => "the protocol of Redis",
            Greeting::Proxy => "the PROXY protocol",
            Greeting::Leeward => "Leeward's protocol",
            Greeting::LeewardDatagram => "Leeward's protocol over UDP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_testkit::greetings::GREETINGS;

    #[test]
    fn greetings_are_told_apart() {
        for (name, bytes) in GREETINGS {
            let told = Greeting::of(bytes).unwrap_or_else(|| panic!("{name} is not told"));
            assert_eq!(told.to_string(), name);
        }
    }

    #[test]
    fn other_bytes_are_nobodys() {
        for bytes in [&b""[..], b"G", b"GET", b"GET a\r\n", b"bogus\r\n", b"\r\n", b"\0\0", b"P", b"hello"] {
            assert_eq!(Greeting::of(bytes), None, "{bytes:?}");
        }
        assert!(
            Greeting::may_follow(b"\r\n\r\n\0") && !Greeting::may_follow(b"\r\n") && !Greeting::may_follow(b"\r\nm")
        );
    }
}
