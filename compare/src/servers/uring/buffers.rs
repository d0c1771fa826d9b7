//! Buffers that the kernel picks from when it receives: a ring that both see, filled here and emptied there.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// How many; a power of two, as the kernel wants it. Every connection of the cases can hold one.
const COUNT: u16 = 1 << 10;
/// Bytes of each: eight of the cases' messages and the kernel's header. Longer messages come in pieces.
const SIZE: usize = 1 << 10;
/// The only group of buffers.
pub(super) const GROUP: u16 = 0;

/// Its bytes are only reached through pointers.
#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[allow(dead_code)] [u8; PAGE]);

/// Bytes of the system's smallest page, to which the ring must be aligned.
const PAGE: usize = 4096;

/// The buffers and their ring.
pub(super) struct Buffers {
    ring: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl Buffers {
    /// Makes them known to the kernel, all of them free. They live as long as the process, because the kernel writes to
    /// them whenever it likes.
    ///
    /// # Errors
    /// The kernel takes none.
    pub(super) fn register(submitter: &Submitter<'_>) -> io::Result<Self> {
        let ring = pages(usize::from(COUNT) * size_of::<BufRingEntry>()).cast::<BufRingEntry>();
        let memory = pages(usize::from(COUNT) * SIZE);
        // SAFETY: `ring` has room for COUNT entries, is aligned to a page and never freed.
        unsafe { submitter.register_buf_ring_with_flags(ring as u64, COUNT, GROUP, 0)? };
        let mut buffers = Buffers { ring, memory, tail: 0 };
        (0..COUNT).for_each(|id| buffers.give_back(id));
        Ok(buffers)
    }

    /// Bytes in buffer `id`, all of them. The kernel must have handed the buffer out, and nobody may have given it
    /// back.
    pub(super) fn bytes(&self, id: u16) -> &[u8] {
        assert!(id < COUNT);
        // SAFETY: in bounds, initialised, and the kernel writes only to buffers that are given back, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.add(usize::from(id) * SIZE), SIZE) }
    }

    /// Lets the kernel have buffer `id` again.
    pub(super) fn give_back(&mut self, id: u16) {
        assert!(id < COUNT);
        // SAFETY: in bounds. The kernel reads entries below the tail only, so this one is ours until the tail moves; in
        // the first entry lies the tail too, which these setters leave alone.
        unsafe {
            let entry = &mut *self.ring.add(usize::from(self.tail & (COUNT - 1)));
            entry.set_addr(self.memory.add(usize::from(id) * SIZE) as u64);
            entry.set_len(SIZE as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first entry, aligned; the kernel only reads it.
        unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring).cast_mut()) }.store(self.tail, Ordering::Release);
    }
}

/// At least so many bytes of zeros in whole pages, never freed.
fn pages(bytes: usize) -> *mut u8 {
    vec![Page([0; PAGE]); bytes.div_ceil(PAGE)].leak().as_mut_ptr().cast()
}
