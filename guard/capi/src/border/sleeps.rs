//! How often a thread has slept. Does not contain what follows from that.

/// How often the calling thread has slept so far.
pub(crate) fn sleeps() -> i64 {
    // SAFETY: counters of all zeroes are valid; the call writes them, and fails for no thread.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}
