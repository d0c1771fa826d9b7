//! Reads or writes several sockets in one system call: io_uring used as a list of calls. Every
//! operation completes within the call that submits it, so the kernel holds no buffer longer. The
//! caller keeps its own source of readiness (epoll).
//!
//! A read and a write per request are most of a server's kernel cost. Entering the kernel is a good
//! part of each.
//!
//! [`messages`] does the same for the datagrams of one socket. [`filter`] keeps foreign datagrams
//! out of its queue. [`lowat`] keeps the kernel's queue of unsent bytes short.
//!
//! `docs/compare.md`, "io_uring", has the numbers, also for a server that uses io_uring throughout.
//!
//! Does not contain readiness, connections, or the meaning of the bytes. All unsafe code of the
//! server's network is in this module.
//!
//! ```
//! use leeward_engine::batch::Batch;
//! use std::io::{Read, Write};
//! use std::os::{fd::AsFd, unix::net::UnixStream};
//!
//! let (mut near, far) = UnixStream::pair()?;
//! near.write_all(b"hello")?;
//! // Fall back to one call per socket if the kernel lacks or forbids io_uring.
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

/// Maximum sockets per call.
pub const SOCKETS: usize = 16;
/// Maximum bytes that one call moves per socket.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// Retries of a call for which the kernel has no memory.
const TRIES: u32 = 1_000;

/// Result of a call that was not made, or not completed.
const NOTHING: i32 = -libc::ECANCELED;

/// Result of reading a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBytes<'a> {
    /// Bytes read; empty at the end of the stream.
    pub bytes: &'a [u8],
    /// Kernel's receive time of the last byte, since the epoch by the system clock. Only for
    /// sockets with `SO_TIMESTAMPING`.
    pub stamp: Option<Duration>,
}

/// A ring used by one thread at a time, with buffers for [`SOCKETS`] sockets.
pub struct Batch {
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Box<Slots>>,
    results: [i32; SOCKETS],
    /// The kernel has failed a submission and may still hold some of this memory.
    broken: bool,
}

impl Batch {
    /// Requests a ring from the kernel.
    ///
    /// # Errors
    /// The kernel has no io_uring (before 5.6), or forbids it, as containers often do.
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

    /// Returns whether the kernel has failed a submission. The last call may or may not have
    /// happened; later calls do nothing.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Reads the first [`SOCKETS`] of `sockets` without blocking, each up to its byte count and
    /// [`BUFFER_BYTES`]. [`Batch::received`] returns the result by position in the list. A socket
    /// must not be in the list twice.
    pub fn receive(&mut self, sockets: &[(BorrowedFd<'_>, usize)]) {
        let sockets = &sockets[..sockets.len().min(SOCKETS)];
        for (slot, (socket, most)) in sockets.iter().enumerate() {
            let header = self.slots.header(slot, *most);
            let entry = opcode::RecvMsg::new(Fd(socket.as_raw_fd()), header).flags(libc::MSG_DONTWAIT as u32).build();
            self.push(slot, entry);
        }
        self.run(sockets.len());
    }

    /// Returns the result of the last [`Batch::receive`] for the socket at `slot`.
    ///
    /// # Errors
    /// As a non-blocking read: `WouldBlock` if nothing was there.
    ///
    /// # Panics
    /// `slot` is not below [`SOCKETS`].
    pub fn received(&self, slot: usize) -> io::Result<ReadBytes<'_>> {
        let count = outcome(self.results[slot])?;
        Ok(ReadBytes { bytes: self.slots.bytes(slot, count), stamp: stamp::parse(self.slots.control(slot)) })
    }

    /// Copies bytes to be sent to the socket at `slot`. Returns false and copies nothing beyond
    /// [`BUFFER_BYTES`].
    ///
    /// # Panics
    /// `slot` is not below [`SOCKETS`].
    pub fn put(&mut self, slot: usize, bytes: &[u8]) -> bool {
        self.slots.put(slot, bytes)
    }

    /// Sends to the first [`SOCKETS`] of `sockets` the bytes [put](Batch::put) into their slots,
    /// without blocking. A socket must not be in the list twice.
    pub fn send(&mut self, sockets: &[BorrowedFd<'_>]) {
        let sockets = &sockets[..sockets.len().min(SOCKETS)];
        for (slot, socket) in sockets.iter().enumerate() {
            let bytes = self.slots.to_send(slot);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let entry =
                opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32).flags(flags).build();
            self.push(slot, entry);
        }
        self.run(sockets.len());
    }

    /// Returns the bytes that the socket at `slot` took in the last [`Batch::send`].
    ///
    /// # Errors
    /// As a non-blocking write: `WouldBlock` if the socket was full.
    ///
    /// # Panics
    /// `slot` is not below [`SOCKETS`].
    pub fn sent(&self, slot: usize) -> io::Result<usize> {
        outcome(self.results[slot])
    }

    fn push(&mut self, slot: usize, entry: squeue::Entry) {
        self.results[slot] = NOTHING;
        if self.broken {
            return;
        }
        // SAFETY: the entry points into `slots`, which stays alive and in place until `run` has
        // seen the completion, or for ever if it doesn't. Each slot has at most one entry in
        // flight.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        // The ring has one entry per slot and is empty between calls.
        self.broken |= pushed.is_err();
    }

    /// Submits the pushed entries and waits for all completions. None of them blocks, so they
    /// complete at once.
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
        // SAFETY: the ring is not used again.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if !self.broken {
            // Every call has completed, so the kernel holds nothing. A broken batch leaks this
            // memory instead.
            // SAFETY: the slots are not used again.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        }
    }
}

/// Sets an option of a socket.
///
/// # Safety
/// The option's value is a `T`. The memory it points at lives during the call, in which the kernel
/// copies both.
unsafe fn set_option<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (value, length) = (ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: by the caller's promise.
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
            for (slot, (peer, _)) in pairs.iter_mut().enumerate() {
                if slot % 2 == 0 {
                    peer.write_all(&vec![round + slot as u8; slot + 1]).unwrap();
                }
            }
            // Loopback delivers within the write.
            let list: Vec<_> = pairs.iter().map(|(_, socket)| (socket.as_fd(), 100)).collect();
            batch.receive(&list);
            for slot in 0..SOCKETS {
                match batch.received(slot) {
                    Ok(received) => assert_eq!(received.bytes, vec![round + slot as u8; slot + 1]),
                    Err(error) => assert_eq!((slot % 2, error.kind()), (1, ErrorKind::WouldBlock)),
                }
            }
            for slot in 0..SOCKETS {
                assert!(batch.put(slot, &vec![slot as u8; 2 * slot + 1]));
            }
            let list: Vec<_> = pairs.iter().map(|(_, socket)| socket.as_fd()).collect();
            batch.send(&list);
            for (slot, (peer, _)) in pairs.iter_mut().enumerate() {
                assert_eq!(batch.sent(slot).unwrap(), 2 * slot + 1);
                let mut got = vec![0; 2 * slot + 1];
                peer.read_exact(&mut got).unwrap();
                assert_eq!(got, vec![slot as u8; 2 * slot + 1]);
            }
        }
    }

    #[test]
    fn ends_resets_and_full_sockets_are_distinguished() {
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
        let error = (0..100_000).find_map(|_| {
            batch.send(&[full.as_fd()]);
            batch.sent(0).err()
        });
        assert_eq!(error.unwrap().kind(), ErrorKind::WouldBlock);
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
