//! Several sockets read, or written, in one system call: io_uring as a list of calls, nothing more. Everything that is
//! begun here completes within the call that begins it, so no buffer is the kernel's for longer than that. The caller
//! keeps its own source of readiness (epoll).
//!
//! Why: a read and a write per request are most of what a server pays the kernel, and a good part of each is getting there.
//!
//! [`messages`] does the same for the datagrams of one socket, [`filter`] keeps foreign ones out of its queue, and [`lowat`] keeps the
//! kernel's queue of what is to leave short.
//!
//! `docs/compare.md`, "io_uring", has the numbers, also those of a server that leaves everything to io_uring.
//!
//! Never here: readiness, connections, what the bytes mean. All unsafe code of the server's network is in this module.
//!
//! ```
//! use leeward_engine::batch::Batch;
//! use std::io::{Read, Write};
//! use std::os::{fd::AsFd, unix::net::UnixStream};
//!
//! let (mut near, far) = UnixStream::pair()?;
//! near.write_all(b"hello")?;
//! // A kernel without io_uring, or one that forbids it, is no reason to fail: one call per socket then.
//! let Ok(mut batch) = Batch::new() else { return Ok(()) };
//! batch.receive(&[(far.as_fd(), 100)]);
//! assert_eq!(batch.received(0).unwrap().bytes, b"hello");
//!
//! assert!(batch.put(0, b"and back"));
//! batch.send(&[far.as_fd()]);
//! assert_eq!(batch.sent(0).unwrap(), 8);
//! let mut answer = [0; 8];
//! near.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"and back");
//! # Ok::<(), std::io::Error>(())
//! ```

mod control;
pub mod filter;
pub mod lowat;
pub mod messages;
mod slots;
mod stamp;

use io_uring::{IoUring, opcode, squeue, types::Fd};
use slots::Slots;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// Sockets of one call, at most.
pub const SOCKETS: usize = 16;
/// Bytes that one call moves for one socket, at most.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// How often a call that the kernel has no memory for is tried again before it is given up.
const TRIES: u32 = 1_000;

/// Result of a call that has not been made, or not been answered.
const NOTHING: i32 = -libc::ECANCELED;

/// Result of reading a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBytes<'a> {
    /// None at the end of the stream.
    pub bytes: &'a [u8],
    /// When the kernel got the last of them, on the system's clock, since the epoch; only of sockets that have
    /// `SO_TIMESTAMPING` set.
    pub stamp: Option<Duration>,
}

/// A ring of one thread's at a time, and room for [`SOCKETS`] sockets.
pub struct Batch {
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Box<Slots>>,
    results: [i32; SOCKETS],
    /// The kernel has refused to go on: it may still have something of ours.
    broken: bool,
}

impl Batch {
    /// Asks the kernel for a ring.
    ///
    /// # Errors
    /// The kernel has no io_uring (before 5.6), or forbids it here, as containers often do.
    pub fn new() -> io::Result<Self> {
        let ring = IoUring::builder().build(SOCKETS as u32)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::RecvMsg::CODE) || !probe.is_supported(opcode::Send::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let slots = ManuallyDrop::new(Slots::boxed());
        Ok(Batch { ring: ManuallyDrop::new(ring), slots, results: [NOTHING; SOCKETS], broken: false })
    }

    /// Whether the kernel has refused to go on. What was asked last may or may not have happened; nothing will any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Reads each of `sockets`, the first [`SOCKETS`] of them, up to so many bytes (and [`ROOM`]), and waits for none. What came
    /// is [`Batch::received`] by the socket's place in the list. A socket must not be in the list twice.
    pub fn receive(&mut self, sockets: &[(BorrowedFd<'_>, usize)]) {
        let sockets = &sockets[..sockets.len().min(SOCKETS)];
        for (place, (socket, most)) in sockets.iter().enumerate() {
            let header = self.slots.header(place, *most);
            let entry = opcode::RecvMsg::new(Fd(socket.as_raw_fd()), header).flags(libc::MSG_DONTWAIT as u32).build();
            self.push(place, entry);
        }
        self.run(sockets.len());
    }

    /// Result that the last [`Batch::receive`] brought from the socket at `place`.
    ///
    /// # Errors
    /// As a read without waiting: `WouldBlock` if nothing was there.
    ///
    /// # Panics
    /// `place` is not below [`SOCKETS`].
    pub fn received(&self, place: usize) -> io::Result<ReadBytes<'_>> {
        let count = outcome(self.results[place])?;
        Ok(ReadBytes { bytes: self.slots.bytes(place, count), stamp: stamp::parse(self.slots.control(place)) })
    }

    /// Copies what shall be sent to the socket at `place`; false, and nothing, if it is more than [`ROOM`].
    ///
    /// # Panics
    /// `place` is not below [`SOCKETS`].
    pub fn put(&mut self, place: usize, bytes: &[u8]) -> bool {
        self.slots.put(place, bytes)
    }

    /// Sends to each of `sockets`, the first [`SOCKETS`] of them, what was [put](Batch::put) at its place, and waits for none. A socket
    /// must not be in the list twice.
    pub fn send(&mut self, sockets: &[BorrowedFd<'_>]) {
        let sockets = &sockets[..sockets.len().min(SOCKETS)];
        for (place, socket) in sockets.iter().enumerate() {
            let bytes = self.slots.to_send(place);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let entry =
                opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32).flags(flags).build();
            self.push(place, entry);
        }
        self.run(sockets.len());
    }

    /// How many bytes the socket at `place` took in the last [`Batch::send`].
    ///
    /// # Errors
    /// As a write without waiting: `WouldBlock` if there was no room.
    ///
    /// # Panics
    /// `place` is not below [`SOCKETS`].
    pub fn sent(&self, place: usize) -> io::Result<usize> {
        outcome(self.results[place])
    }

    fn push(&mut self, place: usize, entry: squeue::Entry) {
        self.results[place] = NOTHING;
        if self.broken {
            return;
        }
        // SAFETY: what the entry points to is in `slots`, which lives and stays in its place until `run` has seen the
        // completion, and for ever if it doesn't; each place has one entry under way at most.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(place as u64)) };
        // The ring has as many entries as there are places, and is empty between two calls.
        self.broken |= pushed.is_err();
    }

    /// Hands over what was pushed and waits until all of it is done, which it is at once: nothing of it may wait.
    fn run(&mut self, count: usize) {
        let (mut done, mut tries) = (0, 0);
        while done < count && !self.broken {
            if let Err(error) = self.ring.submit_and_wait(count - done) {
                tries += 1;
                let again = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY));
                self.broken = !again || tries > TRIES;
            }
            for completion in self.ring.completion() {
                if let Some(result) = self.results.get_mut(completion.user_data() as usize) {
                    *result = completion.result();
                    done += 1;
                }
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: neither is used again.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if !self.broken {
            // Whole calls only: the kernel has nothing under way. Otherwise its memory is left to it.
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        }
    }
}

/// Sets an option of a socket.
///
/// # Safety
/// The option's value is a `T`, and what it points at lives during the call, in which the kernel copies both.
unsafe fn set_option<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (value, length) = (ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: as the caller promises.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn outcome(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_testkit::require::Requirement;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (peer, listener.accept().unwrap().0)
    }

    fn batch() -> Option<Batch> {
        let batch = Batch::new();
        if let Err(error) = &batch {
            Requirement::IoUring.missing(error);
        }
        batch.ok()
    }

    #[test]
    fn each_socket_has_its_own_outcome() {
        let Some(mut batch) = batch() else { return };
        let mut pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
        for round in 0..3_u8 {
            for (place, (peer, _)) in pairs.iter_mut().enumerate() {
                if place % 2 == 0 {
                    peer.write_all(&vec![round + place as u8; place + 1]).unwrap();
                }
            }
            // Loopback delivers within the write.
            let list: Vec<_> = pairs.iter().map(|(_, socket)| (socket.as_fd(), 100)).collect();
            batch.receive(&list);
            for place in 0..SOCKETS {
                match batch.received(place) {
                    Ok(received) => assert_eq!(received.bytes, vec![round + place as u8; place + 1]),
                    Err(error) => assert_eq!((place % 2, error.kind()), (1, ErrorKind::WouldBlock)),
                }
            }
            for place in 0..SOCKETS {
                assert!(batch.put(place, &vec![place as u8; 2 * place + 1]));
            }
            let list: Vec<_> = pairs.iter().map(|(_, socket)| socket.as_fd()).collect();
            batch.send(&list);
            for (place, (peer, _)) in pairs.iter_mut().enumerate() {
                assert_eq!(batch.sent(place).unwrap(), 2 * place + 1);
                let mut got = vec![0; 2 * place + 1];
                peer.read_exact(&mut got).unwrap();
                assert_eq!(got, vec![place as u8; 2 * place + 1]);
            }
        }
    }

    #[test]
    fn ends_resets_and_full_sockets_are_told_apart() {
        let Some(mut batch) = batch() else { return };
        let (ended, at_its_end) = pair();
        drop(ended);
        let (_silent, full) = pair();
        batch.receive(&[(at_its_end.as_fd(), 10), (full.as_fd(), 10)]);
        assert_eq!(batch.received(0).unwrap().bytes, b"");
        assert_eq!(batch.received(1).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(batch.received(2).unwrap_err().raw_os_error(), Some(libc::ECANCELED), "not asked");
        full.set_nonblocking(true).unwrap();
        let bytes = vec![7; BUFFER_BYTES];
        assert!(batch.put(0, &bytes) && !batch.put(1, &vec![7; BUFFER_BYTES + 1]));
        let refused = (0..100_000).find_map(|_| {
            batch.send(&[full.as_fd()]);
            batch.sent(0).err()
        });
        assert_eq!(refused.unwrap().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn no_more_is_read_than_asked_for() {
        let Some(mut batch) = batch() else { return };
        let (mut peer, socket) = pair();
        peer.write_all(&[1, 2, 3, 4, 5]).unwrap();
        batch.receive(&[(socket.as_fd(), 3)]);
        assert_eq!(batch.received(0).unwrap().bytes, [1, 2, 3]);
        batch.receive(&[(socket.as_fd(), 3)]);
        assert_eq!(batch.received(0).unwrap().bytes, [4, 5]);
        let many = vec![9; 3 * BUFFER_BYTES];
        peer.write_all(&many).unwrap();
        batch.receive(&[(socket.as_fd(), usize::MAX)]);
        assert_eq!(batch.received(0).unwrap().bytes, &many[..BUFFER_BYTES]);
    }
}
