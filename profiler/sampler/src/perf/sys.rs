//! Smallest wrappers of perf events' system calls.
//!
//! Does not contain decisions about events, and does not parse records.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attr::EventAttr;

/// Closes the event's descriptor in programs that the recorder executes.
const FLAG_CLOEXEC: libc::c_ulong = 8;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const IOC_ID: libc::c_ulong = 0x8008_2407;

/// Offsets of `data_head`, `data_tail`, `data_offset` and `data_size` in the first page of a ring,
/// in `linux/perf_event.h`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;

/// A perf event.
#[derive(Debug)]
pub(crate) struct Event {
    descriptor: OwnedFd,
}

impl Event {
    /// Opens an event of a thread, or of all threads, on a CPU.
    pub(crate) fn open(attr: &EventAttr, thread: Option<u32>, cpu: u32) -> io::Result<Event> {
        let thread = thread.map_or(-1, |id| id as libc::pid_t);
        // SAFETY: the kernel reads `attr.size` bytes of the structure, which is that long.
        let number = unsafe {
            let no_group: libc::c_int = -1;
            libc::syscall(libc::SYS_perf_event_open, attr, thread, cpu as libc::c_int, no_group, FLAG_CLOEXEC)
        };
        let number = libc::c_int::try_from(number).map_err(io::Error::other)?;
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for the caller.
        Ok(Event { descriptor: unsafe { OwnedFd::from_raw_fd(number) } })
    }

    /// Returns the number by which records name the event.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes eight bytes to `id`.
        check(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), IOC_ID as _, &raw mut id) })?;
        Ok(id)
    }

    /// Sends the event's records to the ring of another event of the same CPU.
    pub(crate) fn send_to(&self, other: &Event) -> io::Result<()> {
        self.control(IOC_SET_OUTPUT, other.descriptor.as_raw_fd())
    }

    /// Begins to record.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.control(IOC_ENABLE, 0)
    }

    /// Stops to record.
    pub(crate) fn disable(&self) -> io::Result<()> {
        self.control(IOC_DISABLE, 0)
    }

    /// Lets a BPF program decide about each sample.
    pub(crate) fn filter(&self, program: &OwnedFd) -> io::Result<()> {
        self.control(IOC_SET_BPF, program.as_raw_fd())
    }

    /// Sets the event's period.
    pub(crate) fn set_period(&self, period: u64) -> io::Result<()> {
        // SAFETY: the kernel reads eight bytes.
        check(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), IOC_PERIOD as _, &raw const period) })
    }

    fn control(&self, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
        // SAFETY: these requests take a number.
        check(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request as _, argument) })
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.descriptor.as_raw_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Memory that the kernel fills with records, and the recorder empties.
#[derive(Debug)]
pub(crate) struct SharedRing {
    memory: NonNull<u8>,
    length: usize,
    data_offset: usize,
    data_size: usize,
}

impl SharedRing {
    /// Maps a ring of `size` bytes, a power of two of pages, for an event.
    pub(crate) fn map(event: &Event, size: usize) -> io::Result<SharedRing> {
        let page = rustix::param::page_size();
        let length = page + size;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut ring = SharedRing { memory, length, data_offset: page, data_size: size };
        let offset = ring.word(DATA_OFFSET).load(Ordering::Relaxed) as usize;
        let kernel_size = ring.word(DATA_SIZE).load(Ordering::Relaxed) as usize;
        let is_inside = offset >= page && offset.checked_add(kernel_size) == Some(length);
        if !is_inside || !kernel_size.is_power_of_two() {
            return Err(io::Error::other("the ring of a perf event has an unknown layout"));
        }
        (ring.data_offset, ring.data_size) = (offset, kernel_size);
        Ok(ring)
    }

    /// Returns the size of the data.
    pub(crate) fn size(&self) -> usize {
        self.data_size
    }

    /// Returns the position up to which the kernel has written. Data before it can be read.
    pub(crate) fn head(&self) -> u64 {
        self.word(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Gives data before a position back to the kernel.
    pub(crate) fn release(&self, tail: u64) {
        self.word(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Copies the data at a position; the data must be before the head and not released.
    pub(crate) fn copy(&self, position: u64, into: &mut [u8]) {
        let size = self.data_size;
        let count = into.len().min(size);
        let start = (position & (size as u64 - 1)) as usize;
        let first = count.min(size - start);
        // SAFETY: both parts are inside the data, whose size is `size`. The kernel does not write
        // to what has not been released.
        unsafe {
            let data = self.memory.as_ptr().add(self.data_offset);
            std::ptr::copy_nonoverlapping(data.add(start), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(first), count - first);
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is inside the first page and aligned, and the mapping lives as long as
        // the ring. The kernel accesses these words as a whole.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(offset).cast()) }
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and no reference to it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}

// SAFETY: nothing about the mapping belongs to the thread that made it.
unsafe impl Send for SharedRing {}
