//! The memory that the kernel reads and writes during a call: per place a buffer, room for control messages, and the
//! structures that say where these are.

use super::{BUFFER_BYTES, SOCKETS};
use std::ptr;

/// Words of eight bytes for control messages: a header and three times, and as much again for what else a socket is asked to tell.
const CONTROL: usize = 16;

struct Slot {
    header: libc::msghdr,
    vector: libc::iovec,
    control: [u64; CONTROL],
    /// Bytes of `buffer` that are to be sent.
    length: usize,
    buffer: [u8; BUFFER_BYTES],
}

pub(super) struct Slots([Slot; SOCKETS]);

// SAFETY: its pointers point into itself, are set before each call and followed by the kernel during it only; nobody here
// follows them.
unsafe impl Send for Slots {}

impl Slots {
    pub(super) fn boxed() -> Box<Self> {
        // SAFETY: all of it is integers, arrays of them and pointers that may be null: all zeros is a value.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Header that tells the kernel to receive up to `most` bytes at `place`. Good until the next call of this.
    pub(super) fn header(&mut self, place: usize, most: usize) -> *mut libc::msghdr {
        let slot = &mut self.0[place];
        slot.vector = libc::iovec { iov_base: ptr::from_mut(&mut slot.buffer).cast(), iov_len: most.min(BUFFER_BYTES) };
        // What is not written must not be taken for the last call's.
        slot.control[..4].fill(0);
        slot.header.msg_iov = &raw mut slot.vector;
        slot.header.msg_iovlen = 1;
        slot.header.msg_control = slot.control.as_mut_ptr().cast();
        slot.header.msg_controllen = size_of::<[u64; CONTROL]>() as _;
        &raw mut slot.header
    }

    pub(super) fn bytes(&self, place: usize, count: usize) -> &[u8] {
        &self.0[place].buffer[..count.min(BUFFER_BYTES)]
    }

    pub(super) fn control(&self, place: usize) -> &[u64] {
        &self.0[place].control
    }

    pub(super) fn put(&mut self, place: usize, bytes: &[u8]) -> bool {
        let slot = &mut self.0[place];
        let Some(into) = slot.buffer.get_mut(..bytes.len()) else { return false };
        into.copy_from_slice(bytes);
        slot.length = bytes.len();
        true
    }

    pub(super) fn to_send(&self, place: usize) -> &[u8] {
        let slot = &self.0[place];
        &slot.buffer[..slot.length]
    }
}
