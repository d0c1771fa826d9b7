//! A socket for datagrams that behaves like a stream of frames: what [`leeward_datagram`] knows, moved by a socket.

use leeward_core::units::{Nanos, Time};
use leeward_datagram::DatagramSize;
use leeward_datagram::client::{Link, LinkCounts, LinkError};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A transport of a connection's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection.
    #[default]
    Tcp,
    /// Datagrams: cheaper for the server, and for calls and answers that fit one (`docs/datagrams.md`).
    Udp,
}

/// A session over datagrams: frames go in and come out whole.
#[derive(Debug)]
pub struct DatagramStream {
    socket: UdpSocket,
    address: SocketAddr,
    link: Link,
    buffer: Box<[u8]>,
    lost: Option<LinkError>,
}

impl DatagramStream {
    /// Begins a session at `address`, in datagrams of `size` at most. `nonce` is random: it names the session until the server has
    /// given it a key.
    ///
    /// # Errors
    /// The system has no socket to give.
    pub fn connect(address: SocketAddr, nonce: u64, size: DatagramSize, now: Time) -> io::Result<Self> {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        // A byte more than any lawful datagram has.
        let buffer = vec![0; size.bytes() + 1].into_boxed_slice();
        let mut stream = DatagramStream { socket, address, link: Link::new(nonce, size, now), buffer, lost: None };
        stream.on_timer(now);
        Ok(stream)
    }

    /// Takes the next frame: into `into`, which has room for any. The clock is read after the datagram. 0 is the end, as of a
    /// stream.
    ///
    /// # Errors
    /// The socket's, [`ErrorKind::WouldBlock`] among them.
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

    /// Goes on with the handshake, if that is where it is.
    fn continue_handshake(&mut self, now: Time) -> io::Result<()> {
        if let Some(port) = self.link.take_port() {
            self.address.set_port(port);
            self.socket.connect(self.address)?;
            self.on_timer(now);
        }
        Ok(())
    }

    /// Sends the whole frames at the beginning of `bytes`, as many as may leave now; how long those are.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if none may: the next time is when something has come.
    pub fn write(&mut self, now: Time, bytes: &[u8]) -> io::Result<usize> {
        let DatagramStream { socket, link, .. } = self;
        match link.send(now, bytes, &mut |datagram: &[u8]| send(socket, datagram)) {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Ends a turn: tells the server that its words have come, unless something that was written has done so.
    pub fn finish(&mut self) {
        let DatagramStream { socket, link, .. } = self;
        link.flush(&mut |datagram: &[u8]| send(socket, datagram));
    }

    /// Sends what is due; a spurious call does nothing. A server that is gone ends the stream: [`DatagramStream::read`] says so.
    pub fn on_timer(&mut self, now: Time) {
        let DatagramStream { socket, link, lost, .. } = self;
        if let Err(why) = link.on_timer(now, &mut |datagram: &[u8]| send(socket, datagram)) {
            *lost = Some(why);
        }
    }

    /// When [`DatagramStream::on_timer`] has something to do; perhaps earlier.
    pub fn next_timeout(&self) -> Time {
        self.link.next_timeout()
    }

    /// Why the stream is at its end, if it is.
    pub fn lost(&self) -> Option<LinkError> {
        self.lost
    }

    /// Calls that may be under way: fewer after a loss.
    pub fn congestion_window(&self) -> u32 {
        self.link.congestion_window()
    }

    /// Datagrams that were sent again, and those that came again.
    pub fn counts(&self) -> LinkCounts {
        self.link.counts()
    }

    /// The smoothed round trip; zero before anything was measured.
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

/// Sends a datagram. One that the system does not take is lost, as it might be on its way.
fn send(socket: &UdpSocket, datagram: &[u8]) {
    let _ = socket.send(datagram);
}
