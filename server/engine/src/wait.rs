//! Sleep of a thread that waits for other threads' sockets: until one of some descriptors is readable, an alarm rings or a time is over.
//! Unlike a poll's own wait it takes nothing: whoever looks next finds what is there. Never here: what is read, and who sleeps.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Descriptors of one sleep, at most.
const MOST: usize = 64;

/// Alarm of a thread, which any thread may ring.
#[derive(Debug)]
pub struct ThreadWaker(File);

impl ThreadWaker {
    /// Silent.
    ///
    /// # Errors
    /// The system has no descriptor to give.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers. What it returns is checked below, and belongs to nobody else.
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
        // Fails only when the counter is full, and then it rings already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    fn hush(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

/// Sleeps until one of `descriptors`, the first 63, is readable, the alarm rings, or `longest` is over. Whether it was neither of the
/// last two.
pub fn wait(alarm: &ThreadWaker, descriptors: &[RawFd], longest: Duration) -> bool {
    let asked = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled = [asked(alarm.0.as_raw_fd()); MOST];
    let count = descriptors.len().min(MOST - 1);
    for (place, descriptor) in polled[1..].iter_mut().zip(&descriptors[..count]) {
        *place = asked(*descriptor);
    }
    let nanos = libc::c_long::from(longest.subsec_nanos() as i32);
    let timeout = libc::timespec { tv_sec: longest.as_secs().min(1 << 30) as libc::time_t, tv_nsec: nanos };
    // SAFETY: `polled` has at least `count + 1` entries and outlives the call, as does `timeout`; no signal mask is given. A
    // descriptor that is closed meanwhile is told as an event, and nothing else.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count as libc::nfds_t + 1, &timeout, ptr::null()) };
    if ready > 0 && polled[0].revents != 0 {
        alarm.hush();
    }
    ready > 0 && polled[1..=count].iter().any(|one| one.revents != 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_sleep_ends_by_the_alarm_or_by_a_socket_and_takes_nothing() {
        let alarm = ThreadWaker::new().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let short = Duration::from_micros(10);
        assert!(!wait(&alarm, &[far.as_raw_fd()], short));
        alarm.wake();
        alarm.wake();
        assert!(!wait(&alarm, &[], Duration::from_secs(3_600)), "rung before");
        assert!(!wait(&alarm, &[], short), "and heard once");
        near.write_all(b"x").unwrap();
        assert!(wait(&alarm, &[far.as_raw_fd()], Duration::from_secs(3_600)));
        assert!(wait(&alarm, &[far.as_raw_fd()], short), "still there");
    }
}
