//! Calls of the kernel: `bpf()`, `perf_event_open()` and shared memory, with owned descriptors.
//!
//! The only unsafe code of the probes. Contains no program and no map.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A command of `bpf()` (`enum bpf_cmd`).
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    ObjectInfo = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    MapLookupBatch = 24,
    EnableStatistics = 32,
}

/// Arguments of `bpf()` (`union bpf_attr`), built field by field. Memory that it names is borrowed
/// for `'a`.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    bytes: [u8; 160],
    memory: std::marker::PhantomData<&'a mut [u8]>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new() -> Arguments<'a> {
        Arguments { bytes: [0; 160], memory: std::marker::PhantomData }
    }

    /// Sets four bytes at an offset.
    pub(super) fn word(mut self, offset: usize, value: u32) -> Arguments<'a> {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Returns four bytes at an offset, which the kernel may have set.
    pub(super) fn word_at(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[offset..offset + 4].try_into().unwrap_or_default())
    }

    /// Sets eight bytes at an offset.
    pub(super) fn double(mut self, offset: usize, value: u64) -> Arguments<'a> {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Sets bytes at an offset.
    pub(super) fn text(mut self, offset: usize, text: &[u8]) -> Arguments<'a> {
        self.bytes[offset..offset + text.len()].copy_from_slice(text);
        self
    }

    /// Lets the kernel read this memory: sets its address.
    pub(super) fn input<T>(self, offset: usize, memory: &'a [T]) -> Arguments<'a> {
        self.double(offset, memory.as_ptr() as u64)
    }

    /// Lets the kernel write to this memory: sets its address.
    pub(super) fn output(self, offset: usize, memory: &'a mut [u8]) -> Arguments<'a> {
        self.double(offset, memory.as_mut_ptr() as u64)
    }
}

/// Calls `bpf()`; repeats it when a signal interrupted the verifier.
pub(super) fn bpf(command: Command, arguments: &mut Arguments<'_>) -> io::Result<i32> {
    /// Each signal lets the verifier begin anew.
    const ATTEMPTS: usize = 10;
    let mut attempt = 0;
    loop {
        // SAFETY: the arguments are initialised, and the memory they name is borrowed by them. Its
        // callers in this folder give slices as long as the sizes that they state beside them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command as libc::c_long,
                arguments.bytes.as_mut_ptr(),
                arguments.bytes.len() as libc::c_long,
            )
        };
        if result >= 0 {
            return Ok(result as i32);
        }
        let error = io::Error::last_os_error();
        attempt += 1;
        if error.raw_os_error() != Some(libc::EAGAIN) || attempt >= ATTEMPTS {
            return Err(error);
        }
    }
}

/// Calls `bpf()` for a command that returns a descriptor.
pub(super) fn bpf_descriptor(command: Command, arguments: &mut Arguments<'_>) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, arguments)?;
    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Calls `perf_event_open()` for a process on all CPUs. The attribute is `struct perf_event_attr`;
/// memory that it names must outlive the call.
pub(super) fn perf_event_open(attribute: &mut [u64; 16], pid: i32, _named: &std::ffi::CStr) -> io::Result<OwnedFd> {
    /// `PERF_FLAG_FD_CLOEXEC` of `linux/perf_event.h`.
    const CLOSE_ON_EXEC: libc::c_long = 8;
    let cpu = if pid < 0 { 0 } else { -1 };
    // SAFETY: the attribute is initialised and as long as its size field says; the path in it is
    // borrowed by `_named`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attribute.as_mut_ptr(),
            libc::c_long::from(pid),
            libc::c_long::from(cpu),
            -1 as libc::c_long,
            CLOSE_ON_EXEC,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Lets a program run at each hit of a perf event, and begins.
pub(super) fn perf_event_run(event: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    /// `_IOW('$', 8, __u32)` and `_IO('$', 0)` of `linux/perf_event.h`.
    const SET_BPF: u64 = 0x4004_2408;
    const ENABLE: u64 = 0x2400;
    for (request, argument) in [(SET_BPF, program.as_raw_fd()), (ENABLE, 0)] {
        // SAFETY: both requests take a number, and no memory.
        let result = unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, argument) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns the size of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Memory that the kernel shares: a part of a map.
#[derive(Debug)]
pub(super) struct SharedMemory {
    address: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value, and its methods only use atomic or copying accesses.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps a part of a map's memory.
    pub(super) fn of(map: &OwnedFd, offset: usize, length: usize, writable: bool) -> io::Result<SharedMemory> {
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the kernel chooses an address where nothing is.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, map.as_raw_fd(), offset as libc::off_t)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedMemory { address: address.cast(), length })
    }

    /// Number at an aligned offset, to be read or written at once.
    ///
    /// # Panics
    /// The offset is outside of the memory or not aligned.
    pub(super) fn double(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length);
        // SAFETY: inside the mapping and aligned (a mapping begins at a page); the kernel changes
        // it by atomic accesses only. Nobody writes to read-only memory: `ring` stores into the
        // consumer's page alone, which is writable.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.address.add(offset).cast()) }
    }

    /// Copies bytes; none if they are not all inside.
    pub(super) fn copy(&self, offset: usize, into: &mut [u8]) -> bool {
        let is_inside = offset.checked_add(into.len()).is_some_and(|end| end <= self.length);
        if is_inside {
            // SAFETY: inside the mapping; the kernel doesn't write to records before they are
            // freed.
            unsafe { std::ptr::copy_nonoverlapping(self.address.add(offset), into.as_mut_ptr(), into.len()) };
        }
        is_inside
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and not used any more.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}
