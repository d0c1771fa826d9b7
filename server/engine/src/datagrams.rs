//! A server's datagram sockets. One validation socket has the address that clients know. Each core
//! has a socket at a port of its own, whose filter drops datagrams without the mark that the
//! validation socket gave.

use crate::batch::filter;
use crate::batch::messages::Incoming;
use leeward_datagram::DatagramSize;
use leeward_datagram::address_validation::AddressValidation;
use leeward_observe::with_host;
use mio::net::UdpSocket;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns, RxqOvfl, SndBuf, SndBufForce};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Buffer of a core's socket, in bytes by the kernel's account: about a thousand for a short
/// datagram. With credits a call does not wait there; the space is for all clients sending at once.
const BUFFER: usize = 16 << 20;
/// Buffer of the validation socket: a flood of greetings loses greetings.
const VALIDATION_BUFFER: usize = 256 << 10;

/// Sockets of a server that is about to start.
pub(crate) struct DatagramSockets {
    pub(crate) bound: SocketAddr,
    pub(crate) validation_socket: UdpSocket,
    pub(crate) cores: Vec<UdpSocket>,
    pub(crate) validation: Arc<AddressValidation>,
    pub(crate) ports: Arc<[u16]>,
}

/// A core's receiving side.
pub(crate) struct InboundDatagrams {
    pub(crate) incoming: Incoming,
    pub(crate) validation: Arc<AddressValidation>,
    /// First core only: the validation socket, the cores' ports, and the index of the next port to
    /// assign.
    pub(crate) validation_socket: Option<(UdpSocket, Arc<[u16]>, usize)>,
    /// Whether the core's socket, and the validation socket, may hold more datagrams. The poll does
    /// not report these again.
    pub(crate) has_more: bool,
    pub(crate) validation_has_more: bool,
    /// The kernel's last count of datagrams lost for lack of buffer space.
    pub(crate) lost: u32,
    /// Randomness for keys.
    pub(crate) random: RandomState,
    pub(crate) opened: u64,
}

impl InboundDatagrams {
    pub(crate) fn new(
        validator: Arc<AddressValidation>,
        entry: Option<(UdpSocket, Arc<[u16]>)>,
        size: DatagramSize,
    ) -> Self {
        InboundDatagrams {
            incoming: Incoming::new(size.bytes()),
            validation: validator,
            validation_socket: entry.map(|(socket, ports)| (socket, ports, 0)),
            has_more: false,
            validation_has_more: false,
            lost: 0,
            random: RandomState::new(),
            opened: 0,
        }
    }

    /// Returns random bits for the next session's key.
    pub(crate) fn draw(&mut self) -> u64 {
        self.opened += 1;
        self.random.hash_one(self.opened)
    }
}

/// Binds a validation socket at `address`, and one socket for each core.
///
/// # Errors
/// The system's error.
pub(crate) fn bind(address: &str, cores: usize) -> io::Result<DatagramSockets> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for address in with_host(address).to_socket_addrs()? {
        match bind_one(address, cores) {
            Ok(sockets) => return Ok(sockets),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_one(address: SocketAddr, cores: usize) -> io::Result<DatagramSockets> {
    // Secrets of this server alone: cookies of an earlier server are invalid.
    let bits = std::array::from_fn(|index| RandomState::new().hash_one(index));
    let validator = Arc::new(AddressValidation::new(bits));
    let entry = UdpSocket::bind(address)?;
    enlarge(&entry, VALIDATION_BUFFER);
    let bound = entry.local_addr()?;
    let core = |_| {
        let socket = UdpSocket::bind(SocketAddr::new(bound.ip(), 0))?;
        enlarge(&socket, BUFFER);
        // Without these options only statistics are missing, so their failure is no error.
        let _ = setsockopt(&socket, ReceiveTimestampns, &true);
        let _ = setsockopt(&socket, RxqOvfl, &1);
        // Without the filter each foreign datagram is checked in user space.
        let _ = filter::attach(socket.as_fd(), validator.mark(), bound.is_ipv6());
        Ok(socket)
    };
    let cores = (0..cores).map(core).collect::<io::Result<Vec<_>>>()?;
    let ports = cores.iter().map(|core| Ok(core.local_addr()?.port())).collect::<io::Result<Vec<_>>>()?;
    Ok(DatagramSockets { bound, validation_socket: entry, cores, validation: validator, ports: ports.into() })
}

/// Enlarges the socket's buffers as far as the system allows.
fn enlarge(socket: &UdpSocket, bytes: usize) {
    if setsockopt(socket, RcvBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, RcvBuf, &bytes);
    }
    if setsockopt(socket, SndBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, SndBuf, &bytes);
    }
}
