//! Writes a header of the PROXY protocol. Does not contain sockets.

use super::{LOCAL, PROXIED, Route, SIGNATURE, TCP_4, TCP_6};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// The header for a connection; `None`: one of the proxy's own, or of a client without an address.
pub(crate) fn encode(version: Version, route: Option<Route>) -> Vec<u8> {
    // Both addresses are of one family. One of IPv4 can be written as one of IPv6.
    let addresses = route.map(|Route { source, destination }| {
        match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (IpAddr::V4(from), IpAddr::V4(to), source.port(), destination.port()),
            (from, to) => (IpAddr::V6(wide(from)), IpAddr::V6(wide(to)), source.port(), destination.port()),
        }
    });
    match (version, addresses) {
        (Version::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
        (Version::V1, Some((from, to, from_port, to_port))) => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
        (Version::V2, None) => [&SIGNATURE[..], &[LOCAL, 0, 0, 0]].concat(),
        (Version::V2, Some((from, to, from_port, to_port))) => {
            let family = if from.is_ipv4() { TCP_4 } else { TCP_6 };
            let mut body = octets(from);
            body.extend(octets(to));
            body.extend(from_port.to_be_bytes());
            body.extend(to_port.to_be_bytes());
            [&SIGNATURE[..], &[PROXIED, family, 0, body.len() as u8], &body].concat()
        }
    }
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl Route {
    /// The route of a connection between these; `None`: one of them has no address.
    pub(crate) fn between(source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Option<Route> {
        source.zip(destination).map(|(source, destination)| Route { source, destination })
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{Decoded, decode};
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let route = |source: &str, destination: &str| {
            Some(Route { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
        };
        for version in [Version::V1, Version::V2] {
            for (written, read) in [
                (None, None),
                (route("10.0.0.1:1", "10.0.0.2:2"), route("10.0.0.1:1", "10.0.0.2:2")),
                (route("[::1]:1", "[::2]:65535"), route("[::1]:1", "[::2]:65535")),
                (route("[::ffff:10.0.0.1]:1", "10.0.0.2:2"), route("10.0.0.1:1", "10.0.0.2:2")),
                (route("10.0.0.1:1", "[::1]:2"), route("[::ffff:10.0.0.1]:1", "[::1]:2")),
            ] {
                let bytes = encode(version, written);
                assert_eq!(decode(&bytes), Decoded::Header { length: bytes.len(), route: read }, "{written:?}");
            }
        }
        assert_eq!(encode(Version::V1, route("10.0.0.1:1", "10.0.0.2:2")), b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n");
        // The example of the specification's binary form.
        let bytes = encode(Version::V2, route("127.0.0.1:1234", "127.0.0.1:5678"));
        assert_eq!(bytes, b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\x04\xd2\x16.");
    }
}
