//! Many datagrams of one socket per system call, with `recvmmsg` and `sendmmsg`. Buffers and
//! headers are allocated once.
//!
//! Does not contain the meaning of a datagram, or the choice of socket.

use super::control;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// Maximum datagrams per call.
pub const MESSAGES: usize = 32;
/// Spare bytes per slot beyond the longest datagram. A datagram that reaches into them is too long.
/// Eight keep the slots apart by whole words.
const BEYOND: usize = 8;
/// Eight-byte words per slot for control messages: a time, and a count of lost datagrams.
const CONTROL: usize = 8;

struct MessageSlot {
    name: libc::sockaddr_storage,
    vector: libc::iovec,
    control: [u64; CONTROL],
}

/// Slots and headers; each header points into its slot.
struct MessageSlots {
    slots: Box<[MessageSlot; MESSAGES]>,
    headers: Box<[libc::mmsghdr; MESSAGES]>,
    /// Bytes of all slots, one after the other.
    bytes: Box<[u8]>,
    /// Longest datagram that is kept, in bytes; a longer one is dropped.
    longest: usize,
}

// SAFETY: its pointers point into its own boxes. They are set before each call, and only the kernel
// follows them, during the call.
unsafe impl Send for MessageSlots {}

impl MessageSlots {
    fn new(longest: usize) -> Self {
        // SAFETY: both are integers, arrays of integers and nullable pointers, so all zeros is a
        // valid value.
        let (zeroed, headers) = unsafe { (Box::new_zeroed().assume_init(), Box::new_zeroed().assume_init()) };
        let bytes = vec![0; MESSAGES * (longest + BEYOND)].into_boxed_slice();
        MessageSlots { slots: zeroed, headers, bytes, longest }
    }

    /// Returns the bytes of a slot.
    fn bytes(&mut self, index: usize) -> &mut [u8] {
        let stride = self.longest + BEYOND;
        &mut self.bytes[index * stride..][..stride]
    }

    /// Points the header of a slot at the slot, with these lengths of buffer, address and control
    /// messages.
    fn aim(&mut self, index: usize, bytes: usize, name: usize, control: usize) {
        let into = self.bytes(index);
        let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: bytes.min(into.len()) };
        let slot = &mut self.slots[index];
        slot.vector = vector;
        let header = &mut self.headers[index];
        header.msg_len = 0;
        header.msg_hdr.msg_name = ptr::from_mut(&mut slot.name).cast();
        header.msg_hdr.msg_namelen = name as libc::socklen_t;
        header.msg_hdr.msg_iov = &raw mut slot.vector;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = if control == 0 { ptr::null_mut() } else { slot.control.as_mut_ptr().cast() };
        header.msg_hdr.msg_controllen = control as _;
        header.msg_hdr.msg_flags = 0;
    }
}

/// A received datagram.
pub struct Message<'a> {
    /// Its bytes.
    pub bytes: &'a mut [u8],
    /// Sender's address, as the network reports it.
    pub from: SocketAddr,
    /// Kernel's receive time since the epoch by the system clock, if the socket requests it.
    pub stamp: Option<Duration>,
    /// Datagrams that this socket has lost so far for lack of buffer space, if reported.
    pub lost: Option<u32>,
}

/// Receive buffers of one socket.
pub struct Incoming {
    slots: MessageSlots,
    count: usize,
}

impl Incoming {
    /// Allocates [`MESSAGES`] slots for datagrams of up to `longest` bytes. Longer ones are
    /// dropped.
    pub fn new(longest: usize) -> Self {
        Incoming { slots: MessageSlots::new(longest), count: 0 }
    }

    /// Receives the datagrams that are there, without waiting, and returns their count.
    /// [`Incoming::message`] returns each.
    ///
    /// # Errors
    /// The socket's error, except that nothing was there.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        for index in 0..MESSAGES {
            // The kernel may leave words unwritten, which must not pass for the last call's.
            self.slots.slots[index].control[..2].fill(0);
            self.slots.aim(index, usize::MAX, size_of::<libc::sockaddr_storage>(), size_of::<[u64; CONTROL]>());
        }
        self.count = 0;
        // SAFETY: each header points at memory of `slots`, which stays alive and in place during
        // the call.
        let count = unsafe {
            let headers = self.slots.headers.as_mut_ptr();
            libc::recvmmsg(socket.as_raw_fd(), headers, MESSAGES as u32, libc::MSG_DONTWAIT, ptr::null_mut())
        };
        match usize::try_from(count) {
            Ok(count) => self.count = count.min(MESSAGES),
            Err(_) => {
                let error = io::Error::last_os_error();
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    return Err(error);
                }
            }
        }
        Ok(self.count)
    }

    /// Returns a datagram of the last [`Incoming::receive`]. `None` beyond the last one, for one
    /// that was too long, and for one whose sender has no internet address.
    pub fn message(&mut self, index: usize) -> Option<Message<'_>> {
        let length = self.slots.headers.get(index).filter(|_| index < self.count)?.msg_len as usize;
        let slot = &self.slots.slots[index];
        let from = address(&slot.name)?;
        let (stamp, lost) = control::parse(&slot.control);
        let longest = self.slots.longest;
        let bytes = self.slots.bytes(index).get_mut(..length).filter(|bytes| bytes.len() <= longest)?;
        Some(Message { bytes, from, stamp, lost })
    }
}

/// Datagrams that wait to be sent.
pub struct Outgoing {
    slots: MessageSlots,
    count: usize,
}

impl Outgoing {
    /// Allocates [`MESSAGES`] slots for datagrams of up to `longest` bytes. Longer ones are lost.
    pub fn new(longest: usize) -> Self {
        Outgoing { slots: MessageSlots::new(longest), count: 0 }
    }

    /// Returns whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether [`Outgoing::send`] must run before the next [`Outgoing::push`].
    pub fn is_full(&self) -> bool {
        self.count == MESSAGES
    }

    /// Adds a datagram. One that is too long, or for which there is no slot, is lost.
    pub fn push(&mut self, bytes: &[u8], to: &SocketAddr) {
        if self.is_full() || bytes.len() > self.slots.longest {
            return;
        }
        let index = self.count;
        self.slots.bytes(index)[..bytes.len()].copy_from_slice(bytes);
        let name = put_address(to, &mut self.slots.slots[index].name);
        self.slots.aim(index, bytes.len(), name, 0);
        self.count += 1;
    }

    /// Sends all pending datagrams without blocking. Returns the datagrams and bytes that the
    /// socket took. Datagrams that it did not take are lost, as they could be on the network.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> (usize, usize) {
        let (mut done, mut sent, mut bytes) = (0, 0, 0);
        while done < self.count {
            // SAFETY: each header points at memory of `slots`, which stays alive and in place
            // during the call.
            let taken = unsafe {
                let headers = self.slots.headers.as_mut_ptr().add(done);
                libc::sendmmsg(socket.as_raw_fd(), headers, (self.count - done) as u32, libc::MSG_DONTWAIT)
            };
            match usize::try_from(taken) {
                Ok(taken) if taken > 0 => {
                    let headers = &self.slots.headers[done..(done + taken).min(self.count)];
                    bytes += headers.iter().map(|header| header.msg_len as usize).sum::<usize>();
                    sent += taken;
                    done += taken;
                }
                // The first of the rest can't be sent; others may.
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => done += 1,
            }
        }
        self.count = 0;
        (sent, bytes)
    }
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: storage is as large and aligned as any address. The family identifies the
            // address type.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Writes an address and returns its length.
fn put_address(to: &SocketAddr, name: &mut libc::sockaddr_storage) -> usize {
    match to {
        SocketAddr::V4(to) => {
            // SAFETY: all zeros is a valid value.
            let mut of: libc::sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
            of.sin_family = libc::AF_INET as libc::sa_family_t;
            of.sin_port = to.port().to_be();
            of.sin_addr.s_addr = u32::from(*to.ip()).to_be();
            // SAFETY: storage is as large and aligned as any address.
            unsafe { ptr::from_mut(name).cast::<libc::sockaddr_in>().write(of) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            // SAFETY: all zeros is a valid value.
            let mut of: libc::sockaddr_in6 = unsafe { MaybeUninit::zeroed().assume_init() };
            of.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            of.sin6_port = to.port().to_be();
            of.sin6_addr.s6_addr = to.ip().octets();
            of.sin6_scope_id = to.scope_id();
            // SAFETY: storage is as large and aligned as any address.
            unsafe { ptr::from_mut(name).cast::<libc::sockaddr_in6>().write(of) };
            size_of::<libc::sockaddr_in6>()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    const LONGEST: usize = 1400;

    fn check_round_trip(address: &str) {
        let Ok(server) = UdpSocket::bind(address) else { return };
        let peers: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind(address).unwrap()).collect();
        let (mut incoming, mut outgoing) = (Incoming::new(LONGEST), Outgoing::new(LONGEST));
        assert_eq!(incoming.receive(server.as_fd()).unwrap(), 0);
        assert!(incoming.message(0).is_none());
        for round in 0..3_u8 {
            for (number, peer) in peers.iter().enumerate() {
                let length = [LONGEST, 5, LONGEST + 1][number];
                peer.send_to(&vec![round; length], server.local_addr().unwrap()).unwrap();
            }
            // Loopback delivers within the send.
            assert_eq!(incoming.receive(server.as_fd()).unwrap(), 3);
            for (number, peer) in peers.iter().enumerate().take(2) {
                let message = incoming.message(number).unwrap();
                assert_eq!(message.from, peer.local_addr().unwrap());
                assert!(message.bytes.iter().all(|byte| *byte == round));
                outgoing.push(message.bytes, &message.from);
            }
            assert!(incoming.message(2).is_none(), "too long");
            assert_eq!(outgoing.send(server.as_fd()), (2, LONGEST + 5));
            assert!(outgoing.is_empty());
            for (number, peer) in peers.iter().enumerate().take(2) {
                let mut bytes = [0; 2000];
                assert_eq!(peer.recv(&mut bytes).unwrap(), [LONGEST, 5][number]);
            }
        }
    }

    #[test]
    fn datagrams_of_several_peers_are_answered_to_each() {
        check_round_trip("127.0.0.1:0");
        check_round_trip("[::1]:0");
    }

    #[test]
    fn a_full_batch_accepts_no_datagram_until_it_is_sent() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let mut outgoing = Outgoing::new(LONGEST);
        for _ in 0..MESSAGES + 3 {
            outgoing.push(b"x", &to);
        }
        assert!(outgoing.is_full());
        assert_eq!(outgoing.send(socket.as_fd()), (MESSAGES, MESSAGES));
        let mut incoming = Incoming::new(LONGEST);
        assert_eq!(incoming.receive(socket.as_fd()).unwrap(), MESSAGES);
    }
}
