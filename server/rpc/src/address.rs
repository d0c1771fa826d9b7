//! Addresses of a server by its name, tried in order, and which protocol is spoken there. Never here: a client's
//! connections, which try the addresses of their replicas on their own.
//!
//! A name may have several addresses, of which the server has some: `localhost` is often `::1` first, where a server on
//! 127.0.0.1 does not listen.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use leeward_wire::ServerProtocol;

use crate::client::Transport;

/// Time for the refusal of a datagram to come back.
const REFUSAL: Duration = Duration::from_millis(200);

/// A request that most text protocols answer: memcached by its version, HTTP/1 by any status, Redis by an error. Nothing
/// is stored by it.
const PROBE_REQUEST: &[u8] = b"version / HTTP/1.0\r\n\r\n";

/// Bytes that show a protocol.
const ENOUGH: usize = 16;

/// Resolves `HOST:PORT`, to one address at least, in the resolver's order.
///
/// # Errors
/// No such text, or no such host.
pub fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(io::Error::new(ErrorKind::NotFound, "no such host")) } else { Ok(addresses) }
}

/// Connects to the first of these addresses that accepts, with so much patience for each.
///
/// # Errors
/// The last address's, with the address where there are several; none was given.
pub fn connect(addresses: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    first(addresses, |address| TcpStream::connect_timeout(address, patience))
}

/// The first of these addresses where somebody listens. The only one is returned unseen. Nothing answers a foreign datagram,
/// so over UDP an address counts as good unless its host refuses the port.
///
/// # Errors
/// As of [`connect`].
pub fn find_listener(addresses: &[SocketAddr], transport: Transport, patience: Duration) -> io::Result<SocketAddr> {
    match (addresses, transport) {
        ([only], _) => Ok(*only),
        (_, Transport::Udp) => first(addresses, |address| accepts_datagrams(address).map(|()| *address)),
        _ => first(addresses, |address| TcpStream::connect_timeout(address, patience).map(|_| *address)),
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

/// The problem that a client had with a server, with the protocol that the server speaks, where that is not the `expected`
/// one. Asks the server.
pub fn with_protocol(problem: String, address: SocketAddr, expected: ServerProtocol, patience: Duration) -> String {
    match ProtocolProbe::run(address, patience) {
        Ok(answering) if answering != ProtocolProbe::Protocol(expected) => format!("{problem}; {answering}"),
        _ => problem,
    }
}

/// Answer of a port to a question in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolProbe {
    /// A protocol that is known here.
    Protocol(ServerProtocol),
    /// Bytes of another one.
    Unknown,
    /// No byte, and the connection was closed.
    Closed,
    /// No byte while there was patience.
    Silent,
}

impl ProtocolProbe {
    /// Asks the port over a connection of its own.
    ///
    /// # Errors
    /// Nobody accepts a connection.
    pub fn run(address: SocketAddr, patience: Duration) -> io::Result<ProtocolProbe> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        let end = Instant::now() + patience;
        stream.set_write_timeout(Some(patience))?;
        // A peer that closed at once may have told why all the same.
        let _ = stream.write_all(PROBE_REQUEST);
        let (mut heard, mut piece) = (Vec::new(), [0; ENOUGH]);
        while ServerProtocol::detect(&heard).is_none() && heard.len() < ENOUGH {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return Ok(if heard.is_empty() { ProtocolProbe::Silent } else { ProtocolProbe::Unknown });
            }
            match stream.read(&mut piece) {
                Ok(0) => return Ok(ProtocolProbe::classify(&heard)),
                Ok(count) => heard.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Ok(ProtocolProbe::classify(&heard)),
            }
        }
        Ok(ProtocolProbe::classify(&heard))
    }

    /// The whole answer of a connection that is over.
    fn classify(heard: &[u8]) -> ProtocolProbe {
        match ServerProtocol::detect(heard) {
            Some(protocol) => ProtocolProbe::Protocol(protocol),
            None if heard.is_empty() => ProtocolProbe::Closed,
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

    /// An address where nobody listens.
    fn vacant() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap()
    }

    #[test]
    fn every_address_of_a_name_is_tried_in_order() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = server.local_addr().unwrap();
        let addresses = [vacant(), vacant(), there];
        assert_eq!(find_listener(&addresses, Transport::Tcp, PATIENCE).unwrap(), there);
        assert_eq!(connect(&addresses, PATIENCE).unwrap().peer_addr().unwrap(), there);
        let only = vacant();
        assert_eq!(find_listener(&[only], Transport::Tcp, PATIENCE).unwrap(), only, "a single one is not looked at");
        let nowhere = [vacant(), vacant()];
        let refused = find_listener(&nowhere, Transport::Tcp, PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(refused.to_string().starts_with(&nowhere[1].to_string()), "{refused}");
        assert!(connect(&[], PATIENCE).is_err() && resolve("nowhere").is_err());
    }

    #[test]
    fn a_refused_datagram_means_the_next_address() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let there = server.local_addr().unwrap();
        let vacant = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        assert_eq!(find_listener(&[vacant, there], Transport::Udp, PATIENCE).unwrap(), there);
        assert_eq!(
            find_listener(&[vacant, vacant], Transport::Udp, PATIENCE).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    }

    /// Answer of [`Answering::ask`] to a server that sends `words` and then closes, or waits.
    fn asked(words: &[u8], closes: bool, patience: Duration) -> ProtocolProbe {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || ProtocolProbe::run(address, patience).unwrap());
            let (mut stream, _) = server.accept().unwrap();
            // All of the question: bytes that nobody has read would turn the end into a reset.
            stream.read_exact(&mut [0; PROBE_REQUEST.len()]).unwrap();
            stream.write_all(words).unwrap();
            if closes {
                drop(stream);
                return asking.join().unwrap();
            }
            let answer = asking.join().unwrap();
            drop(stream);
            answer
        })
    }

    #[test]
    fn a_port_is_known_by_its_answer() {
        let check = |words: &[u8], closes, expected| assert_eq!(asked(words, closes, PATIENCE), expected, "{words:?}");
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
