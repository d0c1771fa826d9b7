//! The clocks that recordings use, in nanoseconds.
//!
//! Does not wait.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of `CLOCK_MONOTONIC`.
pub fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the time since 1970.
pub(crate) fn wall() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of this process.
pub fn process_time() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
