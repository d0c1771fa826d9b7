//! Datagrams of one socket, many in one system call: `recvmmsg` and `sendmmsg`. Buffers and structures are made once.
//!
//! Never here: what a datagram means, and which socket.

use super::control;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// Datagrams of one call, at most.
pub const MESSAGES: usize = 32;
/// Room beyond the longest datagram: one that reaches into it is too long. Rooms stay apart by whole words.
const BEYOND: usize = 8;
/// Words of eight bytes for control messages: a time, and a count of datagrams that were lost.
const CONTROL: usize = 8;

struct MessageSlot {
    name: libc::sockaddr_storage,
    vector: libc::iovec,
    control: [u64; CONTROL],
}

/// Rooms and headers, each header pointing into its room.
struct MessageSlots {
    slots: Box<[MessageSlot; MESSAGES]>,
    headers: Box<[libc::mmsghdr; MESSAGES]>,
    /// Bytes of all rooms, one after the other.
    bytes: Box<[u8]>,
    /// Bytes of a datagram that are kept; a longer one is dropped.
    longest: usize,
}

// SAFETY: the pointers in it point into its own boxes, are set before each call and followed by the kernel during it only;
// nobody here follows them.
unsafe impl Send for MessageSlots {}

impl MessageSlots {
    fn new(longest: usize) -> Self {
        // SAFETY: integers, arrays of them and pointers that may be null: all zeros is a value of both.
        let (rooms, headers) = unsafe { (Box::new_zeroed().assume_init(), Box::new_zeroed().assume_init()) };
        let bytes = vec![0; MESSAGES * (longest + BEYOND)].into_boxed_slice();
        MessageSlots { slots: rooms, headers, bytes, longest }
    }

    /// The bytes of a room.
    fn bytes(&mut self, place: usize) -> &mut [u8] {
        let room = self.longest + BEYOND;
        &mut self.bytes[place * room..][..room]
    }

    /// Has the header at `place` point at its room, with so many bytes of buffer, address and control messages.
    fn aim(&mut self, place: usize, bytes: usize, name: usize, control: usize) {
        let into = self.bytes(place);
        let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: bytes.min(into.len()) };
        let room = &mut self.slots[place];
        room.vector = vector;
        let header = &mut self.headers[place];
        header.msg_len = 0;
        header.msg_hdr.msg_name = ptr::from_mut(&mut room.name).cast();
        header.msg_hdr.msg_namelen = name as libc::socklen_t;
        header.msg_hdr.msg_iov = &raw mut room.vector;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = if control == 0 { ptr::null_mut() } else { room.control.as_mut_ptr().cast() };
        header.msg_hdr.msg_controllen = control as _;
        header.msg_hdr.msg_flags = 0;
    }
}

/// A datagram that has come.
pub struct Message<'a> {
    /// Its bytes.
    pub bytes: &'a mut [u8],
    /// Its sender, as the network says.
    pub from: SocketAddr,
    /// When the kernel got it, on the system's clock, since the epoch; only where the socket is asked to tell.
    pub stamp: Option<Duration>,
    /// Datagrams that this socket has lost so far for want of room, if it says.
    pub lost: Option<u32>,
}

/// Room for what comes.
pub struct Incoming {
    slots: MessageSlots,
    count: usize,
}

impl Incoming {
    /// Room for [`MESSAGES`] datagrams of so many bytes; longer ones are dropped.
    pub fn new(longest: usize) -> Self {
        Incoming { slots: MessageSlots::new(longest), count: 0 }
    }

    /// Takes what is there, without waiting. How many datagrams that is; they are taken from [`Incoming::message`].
    ///
    /// # Errors
    /// The socket's, but for having nothing.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        for place in 0..MESSAGES {
            // What is not written must not be taken for the last call's.
            self.slots.slots[place].control[..2].fill(0);
            self.slots.aim(place, usize::MAX, size_of::<libc::sockaddr_storage>(), size_of::<[u64; CONTROL]>());
        }
        self.count = 0;
        // SAFETY: each header points at memory of `rooms`, which lives and stays in its place during the call.
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

    /// A datagram of the last [`Incoming::receive`]. `None` if there are not as many, if it was too long, or from no address
    /// of the internet.
    pub fn message(&mut self, place: usize) -> Option<Message<'_>> {
        let length = self.slots.headers.get(place).filter(|_| place < self.count)?.msg_len as usize;
        let room = &self.slots.slots[place];
        let from = address(&room.name)?;
        let (stamp, lost) = control::parse(&room.control);
        let longest = self.slots.longest;
        let bytes = self.slots.bytes(place).get_mut(..length).filter(|bytes| bytes.len() <= longest)?;
        Some(Message { bytes, from, stamp, lost })
    }
}

/// Datagrams that wait to be sent.
pub struct Outgoing {
    slots: MessageSlots,
    count: usize,
}

impl Outgoing {
    /// Room for [`MESSAGES`] datagrams of so many bytes; longer ones are lost.
    pub fn new(longest: usize) -> Self {
        Outgoing { slots: MessageSlots::new(longest), count: 0 }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether [`Outgoing::send`] has to come before the next [`Outgoing::push`].
    pub fn is_full(&self) -> bool {
        self.count == MESSAGES
    }

    /// Puts a datagram to the others. One that is too long, or for which there is no room, is lost.
    pub fn push(&mut self, bytes: &[u8], to: &SocketAddr) {
        if self.is_full() || bytes.len() > self.slots.longest {
            return;
        }
        let place = self.count;
        self.slots.bytes(place)[..bytes.len()].copy_from_slice(bytes);
        let name = put_address(to, &mut self.slots.slots[place].name);
        self.slots.aim(place, bytes.len(), name, 0);
        self.count += 1;
    }

    /// Sends all that waits, without waiting itself. How many datagrams and bytes the socket took; what it did not take is
    /// lost, as it might be on its way.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> (usize, usize) {
        let (mut done, mut sent, mut bytes) = (0, 0, 0);
        while done < self.count {
            // SAFETY: each header points at memory of `rooms`, which lives and stays in its place during the call.
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
                // The first of the rest can't be sent: the others may.
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
            // SAFETY: storage is as large and aligned as any address; its family says which this is.
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

/// Writes an address, and says how long it is.
fn put_address(to: &SocketAddr, name: &mut libc::sockaddr_storage) -> usize {
    match to {
        SocketAddr::V4(to) => {
            // SAFETY: all zeros is a value of it.
            let mut of: libc::sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
            of.sin_family = libc::AF_INET as libc::sa_family_t;
            of.sin_port = to.port().to_be();
            of.sin_addr.s_addr = u32::from(*to.ip()).to_be();
            // SAFETY: storage is as large and aligned as any address.
            unsafe { ptr::from_mut(name).cast::<libc::sockaddr_in>().write(of) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            // SAFETY: all zeros is a value of it.
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

    fn there_and_back(address: &str) {
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
    fn what_comes_from_several_goes_back_to_each() {
        there_and_back("127.0.0.1:0");
        there_and_back("[::1]:0");
    }

    #[test]
    fn a_full_house_takes_no_more_until_it_is_sent() {
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
