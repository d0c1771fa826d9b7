//! Reading a socket and learning when the kernel got what is read: the part of the queue that no program can see from
//! outside. Where the kernel gives no timestamps, reading works without.

use crate::batch::Batch;
use leeward_core::units::Nanos;
use mio::net::TcpStream;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ciphertext that is read at once, bytes: no more than the plaintext that a channel may hold.
const SCRATCH: usize = 16 * 1024;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// How many bytes.
    pub bytes: usize,
    /// Prospect of reading again.
    pub state: ReadState,
    /// How long the last of the bytes had been with the kernel, if it says.
    pub wait: Option<Nanos>,
}

/// State of the socket after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// Nothing, not even an end.
    Empty,
    /// All that was there.
    Drained,
    /// Something; more may be there.
    More,
    /// The peer has closed its half.
    End,
}

impl ReadOutcome {
    pub(crate) const NOTHING: ReadOutcome = ReadOutcome { bytes: 0, state: ReadState::Empty, wait: None };

    /// So many bytes into room for so many.
    pub(crate) fn of(bytes: usize, room: usize, waited: Option<Nanos>) -> Self {
        let came = match bytes {
            0 => ReadState::End,
            // A stream socket that gives less than asked for has no more (epoll(7), on edge triggering).
            _ if bytes < room => ReadState::Drained,
            _ => ReadState::More,
        };
        ReadOutcome { bytes, state: came, wait: waited }
    }
}

/// Whether the server may read and write several sockets in one system call, by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Where the kernel has it and allows it.
    #[default]
    Auto,
    /// Never: one call per socket.
    Off,
}

/// Means of reading for a core: room for the kernel's control messages.
pub struct SocketReader {
    control: Vec<u8>,
    /// Several sockets in one call, if the kernel can.
    pub(crate) batch: Option<Batch>,
    /// Room for ciphertext, which is decrypted before anything else is read. Empty until something is encrypted.
    scratch: Box<[u8]>,
}

impl SocketReader {
    /// Room for them, and for several sockets in one call where that may be and the kernel can.
    pub fn new(io_uring: IoUring) -> Self {
        let batch = (io_uring == IoUring::Auto).then(Batch::new).and_then(Result::ok);
        SocketReader { control: nix::cmsg_space!([TimeSpec; 3]), batch, scratch: Box::default() }
    }

    /// Room for ciphertext, to be [given back](Receiver::give_back).
    pub(crate) fn borrow_scratch(&mut self) -> Box<[u8]> {
        let scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() { vec![0; SCRATCH].into() } else { scratch }
    }

    pub(crate) fn give_back(&mut self, scratch: Box<[u8]>) {
        self.scratch = scratch;
    }

    /// Asks the kernel for timestamps of what this socket receives. A kernel that has none is no error.
    pub fn prepare(stream: &TcpStream) {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
        let _ = setsockopt(stream, Timestamping, &flags);
    }

    /// Reads once what is there.
    ///
    /// # Errors
    /// The socket's, but for having nothing.
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
        // A control message that was cut off is a timestamp we don't get.
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmTimestampsns(stamps) = control {
                waited = age(Duration::from(stamps.system));
            }
        }
        Ok(ReadOutcome::of(message.bytes, room, waited))
    }
}

/// How long ago the kernel's clock showed `stamp`. The kernel stamps with the system's time, which may be set: a stamp
/// from the future has waited for nothing, and a leap shows as one odd reading.
pub(crate) fn age(stamp: Duration) -> Option<Nanos> {
    (!stamp.is_zero()).then(|| age_at(stamp, wall_clock()))
}

/// As [`age`], when the system's clock shows `now`.
pub(crate) fn age_at(stamp: Duration, now: Duration) -> Nanos {
    Nanos(u64::try_from(now.saturating_sub(stamp).as_nanos()).unwrap_or(u64::MAX))
}

/// The system's clock, with which the kernel stamps.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Blocking};

    #[test]
    fn what_waits_in_a_socket_has_an_age() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let stream = TcpStream::from_std(stream);
        SocketReader::prepare(&stream);
        // The kernel begins to stamp a moment after the first socket asks for it.
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
    fn no_stamp_is_no_age() {
        assert_eq!(age(Duration::ZERO), None);
        assert_eq!(age(Duration::from_secs(u64::MAX / 2)), Some(Nanos::ZERO));
    }
}
