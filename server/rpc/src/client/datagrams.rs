//! A UDP socket that behaves like a stream of frames: the protocol of [`leeward_datagram`] over a
//! socket.

use leeward_core::units::{Nanos, Time};
use leeward_datagram::DatagramSize;
use leeward_datagram::client::{Link, LinkCounts, LinkError};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Transport of a connection's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection.
    #[default]
    Tcp,
    /// Datagrams: cheaper for the server, for calls and responses that fit one
    /// (`docs/datagrams.md`).
    Udp,
}

/// A session over datagrams that reads and writes whole frames.
#[derive(Debug)]
pub struct DatagramStream {
    socket: UdpSocket,
    address: SocketAddr,
    link: Link,
    buffer: Box<[u8]>,
    lost: Option<LinkError>,
}

impl DatagramStream {
    /// Begins a session with `address`, in datagrams of at most `size`.
    ///
    /// `nonce` is random: it identifies the session until the server has assigned a key.
    ///
    /// # Errors
    /// The system has no socket left.
    pub fn connect(address: SocketAddr, nonce: u64, size: DatagramSize, now: Time) -> io::Result<Self> {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        // One byte more than any valid datagram.
        let buffer = vec![0; size.bytes() + 1].into_boxed_slice();
        let mut stream = DatagramStream { socket, address, link: Link::new(nonce, size, now), buffer, lost: None };
        stream.on_timer(now);
        Ok(stream)
    }

    /// Reads the next frame into `into`, which must hold any frame. 0 is the end, as for a stream.
    ///
    /// Reads the clock after the datagram.
    ///
    /// # Errors
    /// The socket's errors, [`ErrorKind::WouldBlock`] among them.
    pub fn read(&mut self, clock: impl Fn() -> Time, into: &mut [u8]) -> io::Result<usize> {
        while self.lost.is_none() {
            let count = self.socket.recv(&mut self.buffer[..])?;
            let now = clock();
            match self.link.receive(now, &mut self.buffer[..count]) {
                Ok(Some(frame)) => {
                    let Some(into) = into.get_mut(..frame.len()) else { return Err(ErrorKind::InvalidData.into()) };
                    into.copy_from_slice(frame);
                    return Ok(frame.len());
                }
                Ok(None) => self.continue_handshake(now)?,
                Err(lost) => self.lost = Some(lost),
            }
        }
        Ok(0)
    }

    /// Continues the handshake, if it is in progress.
    fn continue_handshake(&mut self, now: Time) -> io::Result<()> {
        if let Some(port) = self.link.take_port() {
            self.address.set_port(port);
            self.socket.connect(self.address)?;
            self.on_timer(now);
        }
        Ok(())
    }

    /// Sends as many whole frames from the start of `bytes` as may leave now, and returns their
    /// length.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if none may leave: try again after the next input.
    pub fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        let DatagramStream { socket, link, .. } = self;
        match link.send(now, bytes, &mut |datagram: &[u8]| send(socket, datagram)) {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Ends a round: acknowledges the server's frames, unless something written has done so.
    pub fn finish(&mut self) {
        let DatagramStream { socket, link, .. } = self;
        link.flush(&mut |datagram: &[u8]| send(socket, datagram));
    }

    /// Sends due datagrams; a spurious call does nothing.
    ///
    /// A dead server ends the stream; [`DatagramStream::read`] returns the end.
    pub fn on_timer(&mut self, now: Time) {
        let DatagramStream { socket, link, lost, .. } = self;
        if let Err(error) = link.on_timer(now, &mut |datagram: &[u8]| send(socket, datagram)) {
            *lost = Some(error);
        }
    }

    /// Time at which [`DatagramStream::on_timer`] has work next; perhaps earlier.
    pub fn next_timeout(&self) -> Time {
        self.link.next_timeout()
    }

    /// Reason for the end of the stream, if it has ended.
    pub fn lost(&self) -> Option<LinkError> {
        self.lost
    }

    /// Calls that may be in flight: fewer after a loss.
    pub fn congestion_window(&self) -> u32 {
        self.link.congestion_window()
    }

    /// Counts of retransmitted and of duplicate datagrams.
    pub fn counts(&self) -> LinkCounts {
        self.link.counts()
    }

    /// Smoothed round trip; zero before the first measurement.
    pub fn round_trip(&self) -> Nanos {
        self.link.round_trip()
    }
}

impl Drop for DatagramStream {
    /// Tells the server, as closing a stream would.
    fn drop(&mut self) {
        let DatagramStream { socket, link, .. } = self;
        link.close(&mut |datagram: &[u8]| send(socket, datagram));
    }
}

impl AsFd for DatagramStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for DatagramStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Sends a datagram. A datagram that the system rejects counts as lost, as on the network.
fn send(socket: &UdpSocket, datagram: &[u8]) {
    let _ = socket.send(datagram);
}
