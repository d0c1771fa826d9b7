//! Reads from sockets with the kernel's receive time. Does not contain the layout of control
//! messages.

use super::pointers::{read, set_errno, write};
use super::types::LW_OK;
use crate::stamp::{self, Read, Stamp};
use crate::status::{Failure, caught};
use crate::thread;
use leeward_runtime::{clock, wall};
use std::ffi::{c_int, c_void};

/// Words for the kernel's control messages: a stamp takes four.
const CONTROL: usize = 16;

/// A thread that sleeps until there are bytes reads them sooner.
const LATE_NS: u64 = 1_000_000;

/// Asks the kernel to stamp the bytes of a socket. Connections inherit it from their listening
/// socket: call it before `listen`.
///
/// `LW_E_SYSTEM`: see `errno`; `EOPNOTSUPP`: not a socket of TCP or UDP. Requests without stamps
/// are admitted by `waited_ns` alone.
#[unsafe(no_mangle)]
pub extern "C" fn lw_stamp_enable(fd: c_int) -> c_int {
    if !is_internet(fd) {
        return Failure::System as c_int;
    }
    let on: c_int = 1;
    // SAFETY: the option is a number, which lives during the call.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { LW_OK } else { Failure::System as c_int }
}

/// Whether the kernel stamps what a socket receives. It takes the option for a Unix socket, too,
/// and ignores it. If not, `errno` has the reason.
fn is_internet(fd: c_int) -> bool {
    let (mut domain, mut length) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes a number of this length.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut length) };
    let is_internet = matches!(domain, libc::AF_INET | libc::AF_INET6);
    if result == 0 && !is_internet {
        set_errno(libc::EOPNOTSUPP);
    }
    result == 0 && is_internet
}

unsafe extern "C-unwind" {
    /// A thread may be cancelled in it, which unwinds the stack (`pthread_cancel(3)`).
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> libc::ssize_t;
}

/// Reads as `recv(2)` does, with its results and `errno`, and updates the connection's stamp.
/// Descriptors that a peer passes over a Unix socket are closed, as by `recv(2)`.
///
/// # Safety
/// `buffer` has `length` bytes; `stamp` is NULL or the connection's, which no other thread uses
/// now.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lw_recv(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    stamp: *mut Stamp,
) -> libc::ssize_t {
    let mut control = [0_u64; CONTROL];
    let mut part = libc::iovec { iov_base: buffer, iov_len: length };
    // SAFETY: a header of all zeroes is valid: no name, no parts, no control messages.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to the caller's buffer and to this function's words, with their
    // sizes. A cancelled thread unwinds through this frame, which has no destructors.
    let received = unsafe { recvmsg(fd, &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
    let words = if received < 0 { 0 } else { message.msg_controllen.div_ceil(size_of::<u64>()).min(CONTROL) };
    for descriptor in stamp::passed(&control[..words]) {
        // SAFETY: the kernel has opened it in this call, and nobody else knows of it.
        unsafe { libc::close(descriptor) };
    }
    // Bytes that are only looked at come again.
    if !stamp.is_null() && received != 0 && flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE) == 0 {
        let at = if received > 0 { stamp::parse(&control[..words]) } else { 0 };
        // After a failed `recvmsg`, nothing changes `errno`.
        caught(|| {
            let brought = usize::try_from(received).ok().map(|bytes| {
                let filled = bytes == length;
                let left = if filled && at > 0 { unread(fd) } else { None };
                Read { received_ns: at, bytes, filled, left, ..Read::default() }
            });
            // SAFETY: the caller's stamp.
            unsafe { note(stamp, brought) }
        });
    }
    received
}

/// Bytes that a socket holds, if it tells.
#[cold]
fn unread(fd: c_int) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the call writes one `int`, which is this function's.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}

/// Updates a connection's stamp after the program's own `recvmsg` with room for control messages.
/// `filled`: the read filled its buffers.
///
/// How many bytes came is unknown, unlike for `lw_recv`: each request of a client that does not
/// wait for answers then counts as received when the socket was last empty.
///
/// # Safety
/// `stamp` and `message` are as the module says; `message` is as `recvmsg(2)` left it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_stamp_note(stamp: *mut Stamp, message: *const libc::msghdr, filled: bool) -> c_int {
    caught(|| {
        // SAFETY: NULL or a header of the caller's.
        let message = unsafe { read(message) }?;
        let length = message.msg_controllen;
        let mut control = [0_u64; CONTROL];
        if !message.msg_control.is_null() && length > 0 {
            let copied = length.min(size_of_val(&control));
            // SAFETY: the kernel has written `msg_controllen` bytes there; the copy fits.
            unsafe {
                control.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(message.msg_control.cast::<u8>(), copied);
            }
        }
        // SAFETY: NULL or the caller's stamp.
        unsafe { note(stamp, Some(Read { received_ns: stamp::parse(&control), filled, ..Read::default() })) }
    })
}

/// Updates a stamp after a read, whose times on this machine are still to be set; `None`: it has
/// brought nothing.
///
/// # Safety
/// `stamp` is NULL or a stamp that no other thread uses now.
#[inline]
unsafe fn note(stamp: *mut Stamp, brought: Option<Read>) -> Result<c_int, Failure> {
    // SAFETY: by the caller's promise.
    let mut updated = unsafe { read(stamp) }?;
    let now = wall::at(clock::process()).unwrap_or(0);
    let mut not_before = thread::not_before(updated.read_ns, now);
    match brought {
        Some(read) => {
            if let Some(size) = stamp::settle(&mut updated) {
                thread::note_request_size(size);
            }
            // A new connection's first read may bring many requests, too.
            if updated.size == 0 {
                updated.size = thread::request_size();
            }
            // Once a thread is late, or reads pipelined requests, each of its reads shows whether
            // it has slept.
            let is_late = read.received_ns > 0 && now.saturating_sub(read.received_ns) >= LATE_NS;
            let is_estimated = read.left.is_some_and(|bytes| bytes > 0);
            if is_late || is_estimated || stamp::is_spread(&updated, read.bytes) || thread::follows_sleeps() {
                not_before = not_before.max(thread::awake_since(now));
            }
            stamp::after_read(&mut updated, &Read { now, not_before, ..read });
        }
        None => stamp::after_empty_read(&mut updated, now),
    }
    // SAFETY: by the caller's promise.
    unsafe { write(stamp, updated) }?;
    Ok(LW_OK)
}
