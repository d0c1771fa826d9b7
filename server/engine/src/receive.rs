//! Reads a socket together with the kernel's receive timestamps. Programs cannot see this part of
//! the queue otherwise. Reading works without timestamps where the kernel has none.

use crate::batch::Batch;
use leeward_core::units::Nanos;
use mio::net::TcpStream;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum ciphertext of one read, bytes: no more than the plaintext that a channel may hold.
const SCRATCH: usize = 16 * 1024;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Number of bytes read.
    pub bytes: usize,
    /// Whether another read may bring more.
    pub state: ReadState,
    /// Time that the kernel held the last of the bytes, if it has a timestamp.
    pub wait: Option<Nanos>,
}

/// State of the socket after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// Neither bytes nor an end.
    Empty,
    /// The read took everything.
    Drained,
    /// The read took some; more may be there.
    More,
    /// The peer has closed its half.
    End,
}

impl ReadOutcome {
    pub(crate) const NOTHING: ReadOutcome = ReadOutcome { bytes: 0, state: ReadState::Empty, wait: None };

    /// Makes the result of a read of `bytes` into a buffer of `room` bytes.
    pub(crate) fn of(bytes: usize, room: usize, waited: Option<Nanos>) -> Self {
        let read_state = match bytes {
            0 => ReadState::End,
            // A stream socket that returns less than requested has no more (epoll(7), on edge
            // triggering).
            _ if bytes < room => ReadState::Drained,
            _ => ReadState::More,
        };
        ReadOutcome { bytes, state: read_state, wait: waited }
    }
}

/// Whether the server may read and write several sockets in one system call, by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Where the kernel has and allows it.
    #[default]
    Auto,
    /// Never: one call per socket.
    Off,
}

/// A core's reader, with buffers for the kernel's control messages.
pub struct SocketReader {
    control: Vec<u8>,
    /// Batch of several sockets per call, if allowed and supported.
    pub(crate) batch: Option<Batch>,
    /// Ciphertext buffer; each read is decrypted before the next. Empty until a connection is
    /// encrypted.
    scratch: Box<[u8]>,
}

impl SocketReader {
    /// Makes a reader, with a batch if `io_uring` allows it and the kernel supports it.
    pub fn new(io_uring: IoUring) -> Self {
        let batch = (io_uring == IoUring::Auto).then(Batch::new).and_then(Result::ok);
        SocketReader { control: nix::cmsg_space!([TimeSpec; 3]), batch, scratch: Box::default() }
    }

    /// Lends the ciphertext buffer, to be [given back](SocketReader::give_back).
    pub(crate) fn borrow_scratch(&mut self) -> Box<[u8]> {
        let scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() { vec![0; SCRATCH].into() } else { scratch }
    }

    pub(crate) fn give_back(&mut self, scratch: Box<[u8]>) {
        self.scratch = scratch;
    }

    /// Enables the kernel's receive timestamps for a socket. A kernel without these is no error.
    pub fn prepare(stream: &TcpStream) {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
        let _ = setsockopt(stream, Timestamping, &flags);
    }

    /// Reads once.
    ///
    /// # Errors
    /// The socket's error, except that nothing was there.
    pub fn receive(&mut self, stream: &TcpStream, into: &mut [u8]) -> io::Result<ReadOutcome> {
        loop {
            match self.receive_once(stream, into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadOutcome::NOTHING),
                received => return received,
            }
        }
    }

    fn receive_once(&mut self, stream: &TcpStream, into: &mut [u8]) -> io::Result<ReadOutcome> {
        let room = into.len();
        let mut slices = [IoSliceMut::new(into)];
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut self.control), MsgFlags::empty())?;
        let mut waited = None;
        // A truncated control message only loses its timestamp.
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmTimestampsns(stamps) = control {
                waited = age(Duration::from(stamps.system));
            }
        }
        Ok(ReadOutcome::of(message.bytes, room, waited))
    }
}

/// Time since the kernel's clock showed `stamp`. The kernel stamps with the system's time, which
/// may be set. A stamp from the future counts as no wait, and a step of the clock shows as one odd
/// reading.
pub(crate) fn age(stamp: Duration) -> Option<Nanos> {
    (!stamp.is_zero()).then(|| age_at(stamp, wall_clock()))
}

/// Time from `stamp` to `now`, both by the system clock.
pub(crate) fn age_at(stamp: Duration, now: Duration) -> Nanos {
    Nanos::from(now.saturating_sub(stamp))
}

/// The system clock, which the kernel stamps with.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Blocking};

    #[test]
    fn waiting_socket_data_has_an_age() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let stream = TcpStream::from_std(stream);
        SocketReader::prepare(&stream);
        // The kernel begins to stamp a moment after the first socket requests it.
        std::thread::sleep(Duration::from_millis(50));
        peer.write_all(b"hello").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut into = [0; 16];
        let received = SocketReader::new(IoUring::Off).receive(&stream, &mut into).unwrap();
        assert_eq!((received.bytes, received.state), (5, ReadState::Drained));
        if let Some(waited) = received.wait {
            assert!(waited >= Nanos::from_millis(20), "{waited}");
        }
    }

    #[test]
    fn no_timestamp_gives_no_age() {
        assert_eq!(age(Duration::ZERO), None);
        assert_eq!(age(Duration::from_secs(u64::MAX / 2)), Some(Nanos::ZERO));
    }
}
