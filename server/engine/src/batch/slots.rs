//! Memory that the kernel reads and writes during a call. Each slot has a buffer, space for control
//! messages, and the structures that point at these.

use super::{BUFFER_BYTES, SOCKETS};
use std::ptr;

/// Eight-byte words for control messages: a header and three times, and as much again for other
/// messages that a socket may request.
const CONTROL: usize = 16;

struct Slot {
    header: libc::msghdr,
    vector: libc::iovec,
    control: [u64; CONTROL],
    /// Bytes of `buffer` to be sent.
    length: usize,
    buffer: [u8; BUFFER_BYTES],
}

pub(super) struct Slots([Slot; SOCKETS]);

// SAFETY: its pointers point into itself. They are set before each call, and only the kernel
// follows them, during the call.
unsafe impl Send for Slots {}

impl Slots {
    pub(super) fn boxed() -> Box<Self> {
        // SAFETY: it consists of integers, arrays of integers and nullable pointers, so all zeros
        // is a valid value.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Returns a header for receiving up to `most` bytes into a slot. Valid until the next call of
    /// this function.
    pub(super) fn header(&mut self, index: usize, most: usize) -> *mut libc::msghdr {
        let slot = &mut self.0[index];
        slot.vector = libc::iovec { iov_base: ptr::from_mut(&mut slot.buffer).cast(), iov_len: most.min(BUFFER_BYTES) };
        // The kernel may leave words unwritten, which must not pass for the last call's.
        slot.control[..4].fill(0);
        slot.header.msg_iov = &raw mut slot.vector;
        slot.header.msg_iovlen = 1;
        slot.header.msg_control = slot.control.as_mut_ptr().cast();
        slot.header.msg_controllen = size_of::<[u64; CONTROL]>() as _;
        &raw mut slot.header
    }

    pub(super) fn bytes(&self, index: usize, count: usize) -> &[u8] {
        &self.0[index].buffer[..count.min(BUFFER_BYTES)]
    }

    pub(super) fn control(&self, index: usize) -> &[u64] {
        &self.0[index].control
    }

    pub(super) fn put(&mut self, index: usize, bytes: &[u8]) -> bool {
        let slot = &mut self.0[index];
        let Some(into) = slot.buffer.get_mut(..bytes.len()) else { return false };
        into.copy_from_slice(bytes);
        slot.length = bytes.len();
        true
    }

    pub(super) fn to_send(&self, index: usize) -> &[u8] {
        let slot = &self.0[index];
        &slot.buffer[..slot.length]
    }
}
