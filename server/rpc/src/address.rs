//! Addresses of a server by its name, tried in order, and detection of the protocol that a server
//! speaks.
//!
//! A name may have several addresses, and the server may listen on only some of them: `localhost`
//! is often `::1` first, where a server on 127.0.0.1 does not listen. Does not contain a client's
//! connections, which try their replicas' addresses themselves.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use leeward_wire::ServerProtocol;

use crate::client::Transport;

/// Time for the rejection of a datagram to come back.
const REFUSAL: Duration = Duration::from_millis(200);

/// A request that most text protocols answer, and that stores nothing.
///
/// Memcached answers with its version, HTTP/1 with a status, Redis with an error.
const PROBE_REQUEST: &[u8] = b"version / HTTP/1.0\r\n\r\n";

/// Bytes that identify a protocol.
const ENOUGH: usize = 16;

/// Resolves `HOST:PORT` to at least one address, in the resolver's order. `:PORT` is on this
/// machine.
///
/// # Errors
/// The text is malformed, or the host is unknown.
pub fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let host = if address.starts_with(':') { "localhost" } else { "" };
    let addresses: Vec<SocketAddr> = format!("{host}{address}").to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(io::Error::new(ErrorKind::NotFound, "no such host")) } else { Ok(addresses) }
}

/// Connects to the first of these addresses that accepts, with a timeout for each.
///
/// # Errors
/// The last address's error, prefixed with the address if there are several, or the list is empty.
pub fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    first(addresses, |address| TcpStream::connect_timeout(address, timeout))
}

/// Returns the first of these addresses with a listener.
///
/// A single address is returned without a check. Servers ignore foreign datagrams, so over UDP an
/// address counts as good unless its host rejects the port.
///
/// # Errors
/// As for [`connect`].
pub fn find_listener(addresses: &[SocketAddr], transport: Transport, timeout: Duration) -> io::Result<SocketAddr> {
    match (addresses, transport) {
        ([only], _) => Ok(*only),
        (_, Transport::Udp) => first(addresses, |address| accepts_datagrams(address).map(|()| *address)),
        _ => first(addresses, |address| TcpStream::connect_timeout(address, timeout).map(|_| *address)),
    }
}

/// The first success over these addresses.
fn first<T>(addresses: &[SocketAddr], attempt: impl Fn(&SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(ErrorKind::NotFound, "no address");
    for address in addresses {
        match attempt(address) {
            Ok(found) => return Ok(found),
            Err(error) if addresses.len() == 1 => last = error,
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

fn accepts_datagrams(address: &SocketAddr) -> io::Result<()> {
    let any = if address.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind::<SocketAddr>(any)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(REFUSAL))?;
    socket.send(&[])?;
    match socket.recv(&mut [0; ENOUGH]) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// Adds the server's protocol to a client's `problem`, if it is not the `expected` one. Probes the
/// server for that.
pub fn with_protocol(problem: String, address: SocketAddr, expected: ServerProtocol, timeout: Duration) -> String {
    match ProtocolProbe::run(address, timeout) {
        Ok(probe) if probe != ProtocolProbe::Protocol(expected) => format!("{problem}; {probe}"),
        _ => problem,
    }
}

/// Response of a port to a request in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolProbe {
    /// A known protocol.
    Protocol(ServerProtocol),
    /// Bytes of an unknown protocol.
    Unknown,
    /// No bytes; the server closed the connection.
    Closed,
    /// No bytes within the timeout.
    Silent,
}

impl ProtocolProbe {
    /// Probes the port over a separate connection.
    ///
    /// # Errors
    /// No server accepts a connection.
    pub fn run(address: SocketAddr, timeout: Duration) -> io::Result<ProtocolProbe> {
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        let deadline = Instant::now() + timeout;
        stream.set_write_timeout(Some(timeout))?;
        // A peer that closed at once may have sent its reason all the same.
        let _ = stream.write_all(PROBE_REQUEST);
        let (mut received, mut buffer) = (Vec::new(), [0; ENOUGH]);
        while ServerProtocol::detect(&received).is_none() && received.len() < ENOUGH {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() || stream.set_read_timeout(Some(remaining)).is_err() {
                return Ok(if received.is_empty() { ProtocolProbe::Silent } else { ProtocolProbe::Unknown });
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(ProtocolProbe::classify(&received)),
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Ok(ProtocolProbe::classify(&received)),
            }
        }
        Ok(ProtocolProbe::classify(&received))
    }

    /// Classifies the whole response of a closed connection.
    fn classify(received: &[u8]) -> ProtocolProbe {
        match ServerProtocol::detect(received) {
            Some(protocol) => ProtocolProbe::Protocol(protocol),
            None if received.is_empty() => ProtocolProbe::Closed,
            None => ProtocolProbe::Unknown,
        }
    }
}

impl fmt::Display for ProtocolProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolProbe::Protocol(protocol) => write!(f, "the server there speaks {protocol}"),
            ProtocolProbe::Unknown => f.write_str("the server there speaks another protocol"),
            ProtocolProbe::Closed => f.write_str("the server there closes connections without an answer"),
            ProtocolProbe::Silent => f.write_str("the server there accepts connections and answers nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// An address without a listener.
    fn vacant() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap()
    }

    #[test]
    fn a_port_alone_is_on_this_machine() {
        assert!(resolve(":80").unwrap().iter().all(|found| found.ip().is_loopback() && found.port() == 80));
        assert!(resolve("80").is_err());
    }

    #[test]
    fn every_address_of_a_name_is_tried_in_order() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = server.local_addr().unwrap();
        let addresses = [vacant(), vacant(), listening];
        assert_eq!(find_listener(&addresses, Transport::Tcp, PATIENCE).unwrap(), listening);
        assert_eq!(connect(&addresses, PATIENCE).unwrap().peer_addr().unwrap(), listening);
        let only = vacant();
        assert_eq!(find_listener(&[only], Transport::Tcp, PATIENCE).unwrap(), only, "a single one is not looked at");
        let nowhere = [vacant(), vacant()];
        let error = find_listener(&nowhere, Transport::Tcp, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().starts_with(&nowhere[1].to_string()), "{error}");
        assert!(connect(&[], PATIENCE).is_err() && resolve("nowhere").is_err());
    }

    #[test]
    fn a_refused_datagram_leads_to_the_next_address() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listening = server.local_addr().unwrap();
        let vacant = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        assert_eq!(find_listener(&[vacant, listening], Transport::Udp, PATIENCE).unwrap(), listening);
        assert_eq!(
            find_listener(&[vacant, vacant], Transport::Udp, PATIENCE).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    }

    /// Result of [`ProtocolProbe::run`] against a server that sends `response`, then closes or
    /// waits.
    fn asked(response: &[u8], closes: bool, timeout: Duration) -> ProtocolProbe {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::scope(|scope| {
            let probe = scope.spawn(move || ProtocolProbe::run(address, timeout).unwrap());
            let (mut stream, _) = server.accept().unwrap();
            // Read the whole request: unread bytes would turn the close into a reset.
            stream.read_exact(&mut [0; PROBE_REQUEST.len()]).unwrap();
            stream.write_all(response).unwrap();
            if closes {
                drop(stream);
                return probe.join().unwrap();
            }
            let result = probe.join().unwrap();
            drop(stream);
            result
        })
    }

    #[test]
    fn a_ports_protocol_is_recognised_by_its_response() {
        let check =
            |response: &[u8], closes, expected| assert_eq!(asked(response, closes, PATIENCE), expected, "{response:?}");
        check(b"ERROR\r\n", false, ProtocolProbe::Protocol(ServerProtocol::Memcached));
        check(b"HTTP/1.1 405 Method Not Allowed\r\n", false, ProtocolProbe::Protocol(ServerProtocol::Http));
        check(b"SSH-2.0-x\r\n", true, ProtocolProbe::Protocol(ServerProtocol::Ssh));
        check(b"", true, ProtocolProbe::Closed);
        check(b"220 mail", true, ProtocolProbe::Unknown);
        check(b"220 mail.example.org ESMTP\r\n", false, ProtocolProbe::Unknown);
        let soon = Duration::from_millis(50);
        assert_eq!(asked(b"", false, soon), ProtocolProbe::Silent);
        assert_eq!(asked(b"220", false, soon), ProtocolProbe::Unknown);
        assert!(ProtocolProbe::run(vacant(), PATIENCE).is_err());
        assert_eq!(with_protocol("late".into(), vacant(), ServerProtocol::Leeward, PATIENCE), "late");
    }
}
