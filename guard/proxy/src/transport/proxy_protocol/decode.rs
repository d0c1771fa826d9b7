//! Reads a header of the PROXY protocol, version 1 or 2, strictly. Checksums and other fields of
//! version 2 are skipped. Does not contain sockets.

use super::{LOCAL, PROXIED, Route, SIGNATURE, TCP_4, TCP_6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Begins a header of version 1.
const TEXT: &[u8] = b"PROXY ";
/// Longest header of version 1, with its end.
const TEXT_MAX: usize = 107;
/// Longest header of version 2: room for a certificate among its fields.
pub(crate) const LONGEST: usize = 16 + 4_096;

/// What the bytes are so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// They may become a header.
    Incomplete,
    /// A header of this length.
    Header {
        /// Its length in bytes.
        length: usize,
        /// What it says; `None`: the connection is the proxy's own, or of an unknown kind.
        route: Option<Route>,
    },
    /// They are no header, and can't become one.
    Malformed,
}

/// Reads the first bytes of a connection.
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let begins = |with: &[u8]| {
        let length = bytes.len().min(with.len());
        bytes[..length] == with[..length]
    };
    let decoded = if begins(&SIGNATURE) {
        binary(bytes)
    } else if begins(TEXT) {
        text(bytes)
    } else {
        return Decoded::Malformed;
    };
    decoded.unwrap_or(Decoded::Malformed)
}

/// Version 1: `PROXY TCP4 SOURCE DESTINATION PORT PORT`; `None`: it is malformed.
fn text(bytes: &[u8]) -> Option<Decoded> {
    let line = &bytes[..bytes.len().min(TEXT_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r');
        return (line.len() < TEXT_MAX && line.iter().all(is_plain)).then_some(Decoded::Incomplete);
    };
    let rest = line[..end].strip_suffix(b"\r")?.strip_prefix(TEXT)?;
    let rest = std::str::from_utf8(rest).ok()?;
    let length = end + 1;
    let mut words = rest.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        // A receiver ignores what follows.
        return Some(Decoded::Header { length, route: None });
    }
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse().ok().map(IpAddr::V4),
            "TCP6" => word.parse().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().and_then(port);
    let (from, to) = (port()?, port()?);
    let route = Route { source: SocketAddr::new(source, from), destination: SocketAddr::new(destination, to) };
    words.next().is_none().then_some(Decoded::Header { length, route: Some(route) })
}

/// A port in digits, without zeros or signs in front.
fn port(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word.len() == 1 || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

/// Version 2: signature, command, family, length, addresses, further fields.
fn binary(bytes: &[u8]) -> Option<Decoded> {
    let Some((head, rest)) = bytes.split_at_checked(16) else { return Some(Decoded::Incomplete) };
    let (command, family) = (head[12], head[13]);
    if !matches!(command, LOCAL | PROXIED) {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if 16 + length > LONGEST {
        return None;
    }
    let Some(body) = rest.get(..length) else { return Some(Decoded::Incomplete) };
    let length = 16 + length;
    // A proxy's own connection, such as a health check, has whatever addresses.
    let route = match family {
        _ if command == LOCAL => None,
        TCP_4 => Some(route::<4>(body)?),
        TCP_6 => Some(route::<16>(body)?),
        // Of unknown or other kinds: a receiver takes the connection's own addresses.
        _ if family >> 4 <= 3 && family & 0x0f <= 2 => None,
        _ => return None,
    };
    Some(Decoded::Header { length, route })
}

/// Two addresses of so many bytes, then two ports.
fn route<const BYTES: usize>(body: &[u8]) -> Option<Route> {
    let address = |at: usize| -> Option<IpAddr> {
        let bytes = body.get(at..at + BYTES)?;
        let four = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
        let sixteen = || <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)));
        four.or_else(|_| sixteen()).ok()
    };
    let port = |at: usize| Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
    Some(Route {
        source: SocketAddr::new(address(0)?, port(2 * BYTES)?),
        destination: SocketAddr::new(address(BYTES)?, port(2 * BYTES + 2)?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::encode::{Version, encode};
    use super::*;
    use leeward_testkit::fuzz::FuzzSearch;
    use leeward_testkit::random::Random;

    fn route_of(source: &str, destination: &str) -> Option<Route> {
        Some(Route { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
    }

    #[test]
    fn headers_of_text_are_read() {
        for (line, route) in [
            ("PROXY TCP4 10.0.0.1 10.0.0.2 1234 80\r\n", route_of("10.0.0.1:1234", "10.0.0.2:80")),
            ("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", route_of("[2001:db8::1]:65535", "[::1]:0")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        ] {
            let length = line.len();
            assert_eq!(decode(line.as_bytes()), Decoded::Header { length, route }, "{line}");
            assert_eq!(decode(format!("{line}GET /").as_bytes()), Decoded::Header { length, route }, "{line}");
            for cut in 0..length {
                assert_eq!(decode(&line.as_bytes()[..cut]), Decoded::Incomplete, "{line} {cut}");
            }
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        let long = format!("PROXY UNKNOWN {}", "1".repeat(93));
        for line in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY  TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 \r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 65536\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 +1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 01 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.256 1 2\r\n",
            "PROXY TCP4 010.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY UNKNOWNED\r\n",
            "PROXY \r\n",
            "PROXY TCP4\t10.0.0.1 10.0.0.2 1 2",
            "PROXY TCP4 10.0.0.1\0",
            &long,
        ] {
            assert_eq!(decode(line.as_bytes()), Decoded::Malformed, "{line:?}");
        }
    }

    fn head(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    #[test]
    fn binary_headers_are_read() {
        let four = [10, 0, 0, 1, 10, 0, 0, 2, 4, 210, 0, 80];
        let fields = [&four[..], &[3, 0, 4, 1, 2, 3, 4], &[0xff; 500]].concat();
        let six = [[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0; 16]].concat();
        let six = [&six[..], &[0, 1, 0, 2]].concat();
        for (bytes, route) in [
            (head(PROXIED, TCP_4, &four), route_of("10.0.0.1:1234", "10.0.0.2:80")),
            (head(PROXIED, TCP_4, &fields), route_of("10.0.0.1:1234", "10.0.0.2:80")),
            (head(PROXIED, TCP_6, &six), route_of("[2001:db8::1]:1", "[::]:2")),
            (head(LOCAL, 0, &[]), None),
            (head(LOCAL, TCP_4, &four), None),
            (head(LOCAL, TCP_4, &[1]), None),
            (head(PROXIED, 0, &[]), None),
            (head(PROXIED, 0x12, &four), None),
            (head(PROXIED, 0x31, &[0; 216]), None),
        ] {
            assert_eq!(decode(&bytes), Decoded::Header { length: bytes.len(), route }, "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Decoded::Incomplete, "{cut}");
            }
        }
        for bytes in [
            head(0x22, TCP_4, &four),
            head(0x11, TCP_4, &four),
            head(PROXIED, TCP_4, &four[..11]),
            head(PROXIED, TCP_6, &four),
            head(PROXIED, 0x41, &four),
            head(PROXIED, 0x13, &four),
            head(PROXIED, TCP_4, &[0; LONGEST]),
            [&SIGNATURE[..11], b"x"].concat(),
        ] {
            assert_eq!(decode(&bytes), Decoded::Malformed, "{:?}", &bytes[..bytes.len().min(40)]);
        }
    }

    /// A header, some bytes of which differ, and more bytes.
    fn mutant(random: &mut Random) -> Vec<u8> {
        let address = |random: &mut Random| match random.below(2) {
            0 => SocketAddr::new(
                IpAddr::V4(Ipv4Addr::from(random.below(usize::MAX) as u32)),
                random.below(65_536) as u16,
            ),
            _ => SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from(random.below(usize::MAX) as u128)),
                random.below(65_536) as u16,
            ),
        };
        let (source, destination) = (address(random), address(random));
        let route = (random.below(8) > 0).then_some(Route { source, destination });
        let mut bytes = encode([Version::V1, Version::V2][random.below(2)], route);
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte(b" \r\n\x20\x21\x11\x00\xff:.PROXY09");
        }
        bytes.extend(std::iter::repeat_n(b'x', random.below(3)));
        bytes.truncate(random.below(bytes.len() + 1));
        bytes
    }

    /// Whatever comes: the length is within the bytes, more bytes change nothing, and an incomplete
    /// header is bounded.
    #[test]
    fn any_bytes_are_a_header_or_none() {
        let findings = std::env::temp_dir();
        let search = FuzzSearch { name: "proxy-protocol", findings: &findings, iterations: 60_000 };
        search.run(mutant, |_, bytes| {
            let decoded = decode(bytes);
            match decoded {
                Decoded::Header { length, .. } => {
                    assert!((15..=LONGEST).contains(&length) && length <= bytes.len());
                    assert_eq!(decode(&bytes[..length]), decoded);
                    assert_eq!(decode(&bytes[..length - 1]), Decoded::Incomplete);
                }
                Decoded::Incomplete => assert!(bytes.len() < LONGEST),
                Decoded::Malformed => {
                    assert_eq!(decode(&[bytes, b"more"].concat()), Decoded::Malformed);
                }
            }
        });
    }
}
