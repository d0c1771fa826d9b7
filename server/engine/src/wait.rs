//! Sleep of a thread until one of some descriptors is readable, another thread wakes it, or a time
//! has passed. Unlike a poll it consumes no event, so the next reader finds it. Does not contain
//! reading, or the choice of thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Maximum descriptors of one sleep.
const MOST: usize = 64;

/// Waker of a thread, usable from any thread.
#[derive(Debug)]
pub struct ThreadWaker(File);

impl ThreadWaker {
    /// Makes a waker.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers. The returned descriptor is checked below, and has no
        // other owner.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open and was given to this function alone.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(ThreadWaker(File::from(owned)))
    }

    /// Ends the thread's sleep, or keeps it from the next one.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the thread is being woken already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    fn hush(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

/// Sleeps until one of `descriptors`, the first 63, is readable, the waker wakes the thread, or
/// `longest` has passed. Returns whether a descriptor is readable.
pub fn wait(waker: &ThreadWaker, descriptors: &[RawFd], longest: Duration) -> bool {
    let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled = [entry(waker.0.as_raw_fd()); MOST];
    let count = descriptors.len().min(MOST - 1);
    for (slot, descriptor) in polled[1..].iter_mut().zip(&descriptors[..count]) {
        *slot = entry(*descriptor);
    }
    let nanos = libc::c_long::from(longest.subsec_nanos() as i32);
    let timeout = libc::timespec { tv_sec: longest.as_secs().min(1 << 30) as libc::time_t, tv_nsec: nanos };
    // SAFETY: `polled` has at least `count + 1` entries and outlives the call, as does `timeout`;
    // no signal mask is given. A descriptor that is closed meanwhile only shows as an event.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count as libc::nfds_t + 1, &timeout, ptr::null()) };
    if ready > 0 && polled[0].revents != 0 {
        waker.hush();
    }
    ready > 0 && polled[1..=count].iter().any(|one| one.revents != 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_ends_by_the_waker_or_a_socket_and_consumes_nothing() {
        let waker = ThreadWaker::new().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let short = Duration::from_micros(10);
        assert!(!wait(&waker, &[far.as_raw_fd()], short));
        waker.wake();
        waker.wake();
        assert!(!wait(&waker, &[], Duration::from_secs(3_600)), "rung before");
        assert!(!wait(&waker, &[], short), "and heard once");
        near.write_all(b"x").unwrap();
        assert!(wait(&waker, &[far.as_raw_fd()], Duration::from_secs(3_600)));
        assert!(wait(&waker, &[far.as_raw_fd()], short), "still there");
    }
}
