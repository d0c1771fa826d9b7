//! A server's sockets for datagrams: a door, at the address that clients know, and one socket per core at a port of its own,
//! whose filter lets nobody in who has not been told a mark at the door.

use crate::batch::filter;
use crate::batch::messages::Incoming;
use leeward_datagram::DatagramSize;
use leeward_datagram::address_validation::AddressValidation;
use mio::net::UdpSocket;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns, RxqOvfl, SndBuf, SndBufForce};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Room in a core's socket, in bytes as the kernel counts them, about a thousand for a short datagram. With credits a call does
/// not wait there; it is room for all clients to speak at once.
const BUFFER: usize = 16 << 20;
/// Room at the door: a flood of greetings loses greetings.
const VALIDATION_BUFFER: usize = 256 << 10;

/// Sockets of a server that is to be.
pub(crate) struct DatagramSockets {
    pub(crate) bound: SocketAddr,
    pub(crate) validation_socket: UdpSocket,
    pub(crate) cores: Vec<UdpSocket>,
    pub(crate) validation: Arc<AddressValidation>,
    pub(crate) ports: Arc<[u16]>,
}

/// A core's side of the sockets.
pub(crate) struct InboundDatagrams {
    pub(crate) incoming: Incoming,
    pub(crate) validation: Arc<AddressValidation>,
    /// The first core's: where strangers come, the cores' ports, and whose turn it is to have the next stranger.
    pub(crate) validation_socket: Option<(UdpSocket, Arc<[u16]>, usize)>,
    /// More may wait in the core's socket, and at the door, than was taken: the poll does not say it again.
    pub(crate) has_more: bool,
    pub(crate) validation_has_more: bool,
    /// Datagrams lost for want of room, as the kernel said last.
    pub(crate) lost: u32,
    /// Randomness for keys.
    pub(crate) random: RandomState,
    pub(crate) opened: u64,
}

impl InboundDatagrams {
    pub(crate) fn new(
        secrets: Arc<AddressValidation>,
        door: Option<(UdpSocket, Arc<[u16]>)>,
        size: DatagramSize,
    ) -> Self {
        InboundDatagrams {
            incoming: Incoming::new(size.bytes()),
            validation: secrets,
            validation_socket: door.map(|(socket, ports)| (socket, ports, 0)),
            has_more: false,
            validation_has_more: false,
            lost: 0,
            random: RandomState::new(),
            opened: 0,
        }
    }

    /// Random bits for the next session's key.
    pub(crate) fn draw(&mut self) -> u64 {
        self.opened += 1;
        self.random.hash_one(self.opened)
    }
}

/// Binds a door at `address` and a socket for each of so many cores.
///
/// # Errors
/// The system's.
pub(crate) fn bind(address: &str, cores: usize) -> io::Result<DatagramSockets> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for address in address.to_socket_addrs()? {
        match bind_one(address, cores) {
            Ok(sockets) => return Ok(sockets),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_one(address: SocketAddr, cores: usize) -> io::Result<DatagramSockets> {
    // Secrets of this server alone: cookies of an earlier one are no good here.
    let bits = std::array::from_fn(|place| RandomState::new().hash_one(place));
    let secrets = Arc::new(AddressValidation::new(bits));
    let door = UdpSocket::bind(address)?;
    enlarge(&door, VALIDATION_BUFFER);
    let bound = door.local_addr()?;
    let core = |_| {
        let socket = UdpSocket::bind(SocketAddr::new(bound.ip(), 0))?;
        enlarge(&socket, BUFFER);
        // A kernel without them is no error: nothing but a number is missing then.
        let _ = setsockopt(&socket, ReceiveTimestampns, &true);
        let _ = setsockopt(&socket, RxqOvfl, &1);
        // Without the filter every foreign datagram costs a look, no more.
        let _ = filter::attach(socket.as_fd(), secrets.mark(), bound.is_ipv6());
        Ok(socket)
    };
    let cores = (0..cores).map(core).collect::<io::Result<Vec<_>>>()?;
    let ports = cores.iter().map(|core| Ok(core.local_addr()?.port())).collect::<io::Result<Vec<_>>>()?;
    Ok(DatagramSockets { bound, validation_socket: door, cores, validation: secrets, ports: ports.into() })
}

/// As much room as the system gives.
fn enlarge(socket: &UdpSocket, bytes: usize) {
    if setsockopt(socket, RcvBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, RcvBuf, &bytes);
    }
    if setsockopt(socket, SndBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, SndBuf, &bytes);
    }
}
