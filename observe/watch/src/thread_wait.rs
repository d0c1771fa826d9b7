//! What a thread waits for, from the system call that it is in.

use procfs::process::Syscall;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadWait {
    /// It runs, or waits for a CPU.
    Runnable,
    /// A disk: the system call works on files only.
    Disk,
    /// A futex: a lock, a condition variable, or an idle pool.
    Futex {
        /// Address of the futex.
        address: u64,
        /// Whether it is certainly a mutex.
        is_mutex: bool,
    },
    /// A descriptor: bytes to read, or room to write.
    Descriptor(i32),
    /// One or two descriptors, by a list at this address of the process's memory.
    Poll(u64),
    /// Time.
    Sleep,
    /// Many descriptors, a child, a signal, or anything else.
    Other,
}

impl ThreadWait {
    /// Reads a thread's state letter and system call.
    ///
    /// A thread in uninterruptible sleep waits for a disk, whatever the call: page faults and
    /// directory reads wait for disks, too.
    pub(crate) fn of(state: char, syscall: Option<Syscall>) -> ThreadWait {
        match (state, syscall) {
            ('R', _) => ThreadWait::Runnable,
            ('D', _) => ThreadWait::Disk,
            (_, Some(Syscall::Blocked { syscall_number, argument_registers, .. })) => {
                ThreadWait::in_call(syscall_number, &argument_registers)
            }
            _ => ThreadWait::Other,
        }
    }

    fn in_call(number: i64, arguments: &[u64; 6]) -> ThreadWait {
        match number {
            libc::SYS_futex => futex(arguments),
            libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync
            | libc::SYS_syncfs
            | libc::SYS_sync_file_range
            | libc::SYS_msync
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_openat
            | libc::SYS_unlinkat
            | libc::SYS_renameat
            | libc::SYS_getdents64
            | libc::SYS_io_getevents => ThreadWait::Disk,
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_connect
            | libc::SYS_sendfile => ThreadWait::Descriptor(arguments[0] as i32),
            // The resolver of C waits so, and programs that read with a time-out.
            libc::SYS_poll | libc::SYS_ppoll if (1..=2).contains(&arguments[1]) => ThreadWait::Poll(arguments[0]),
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => ThreadWait::Sleep,
            _ => ThreadWait::Other,
        }
    }
}

/// Reads the arguments of a futex call.
///
/// glibc and Rust mark a contended mutex by the value 2, on which waiters wait with plain
/// `FUTEX_WAIT`. Locks with priority inheritance have an operation of their own. Condition
/// variables and semaphores look alike.
fn futex(arguments: &[u64; 6]) -> ThreadWait {
    /// All bits but "private" and "real-time clock".
    const COMMAND: u64 = 0x7f;
    let command = (arguments[1] & COMMAND) as i32;
    let waits_on_two = command == libc::FUTEX_WAIT && arguments[2] as u32 == 2;
    let is_mutex = waits_on_two || command == libc::FUTEX_LOCK_PI;
    ThreadWait::Futex { address: arguments[0], is_mutex }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(number: i64, arguments: [u64; 6]) -> Option<Syscall> {
        let (stack_pointer, program_counter) = (0, 0);
        Some(Syscall::Blocked { syscall_number: number, argument_registers: arguments, stack_pointer, program_counter })
    }

    #[test]
    fn waits_are_told_by_state_and_call() {
        let futex = |operation, value| blocked(libc::SYS_futex, [0x7f00, operation, value, 0, 0, 0]);
        for (state, call, expected) in [
            ('R', Some(Syscall::Running), ThreadWait::Runnable),
            ('D', blocked(libc::SYS_read, [3, 0, 0, 0, 0, 0]), ThreadWait::Disk),
            ('S', blocked(libc::SYS_fsync, [3, 0, 0, 0, 0, 0]), ThreadWait::Disk),
            ('S', blocked(libc::SYS_recvfrom, [7, 0, 0, 0, 0, 0]), ThreadWait::Descriptor(7)),
            ('S', blocked(libc::SYS_poll, [0x7f10, 1, 5_000, 0, 0, 0]), ThreadWait::Poll(0x7f10)),
            ('S', blocked(libc::SYS_poll, [0x7f10, 300, 5_000, 0, 0, 0]), ThreadWait::Other),
            ('S', blocked(libc::SYS_clock_nanosleep, [0; 6]), ThreadWait::Sleep),
            ('S', blocked(libc::SYS_epoll_pwait, [4, 0, 0, 0, 0, 0]), ThreadWait::Other),
            ('S', futex(0x80, 2), ThreadWait::Futex { address: 0x7f00, is_mutex: true }),
            ('S', futex(0x86, 0), ThreadWait::Futex { address: 0x7f00, is_mutex: true }),
            ('S', futex(0x80, 0), ThreadWait::Futex { address: 0x7f00, is_mutex: false }),
            // A semaphore or a condition variable.
            ('S', futex(0x189, 0), ThreadWait::Futex { address: 0x7f00, is_mutex: false }),
            ('S', futex(0x189, 2), ThreadWait::Futex { address: 0x7f00, is_mutex: false }),
            ('S', None, ThreadWait::Other),
            ('T', None, ThreadWait::Other),
        ] {
            assert_eq!(ThreadWait::of(state, call), expected, "{state} {call:?}");
        }
    }
}
