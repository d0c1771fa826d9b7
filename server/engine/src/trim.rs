//! Gives memory back to the system after long requests, unread responses, or many connections. The
//! C library's allocator would keep it.

/// Number of connections from which memory is given back: their buffers take 16 MB and more.
pub(crate) const MANY_CONNECTIONS: usize = 512;
/// Bytes from which giving memory back is worthwhile.
pub(crate) const MANY_BYTES: usize = 8 << 20;

/// High-water mark of a number of connections or bytes.
#[derive(Debug)]
pub(crate) struct HighWaterMark {
    /// The least number that counts as high.
    high: usize,
    /// The largest number since it last receded.
    most: usize,
}

impl HighWaterMark {
    /// Makes a mark for numbers from `high` on.
    pub(crate) fn new(high: usize) -> Self {
        HighWaterMark { high, most: 0 }
    }

    /// Notes the current number.
    pub(crate) fn note(&mut self, now: usize) {
        self.most = self.most.max(now);
    }

    /// Returns, once, whether the number was high and less than an eighth of its maximum is left.
    pub(crate) fn has_receded(&mut self, now: usize) -> bool {
        self.note(now);
        let is_over = self.most >= self.high && now < self.most / 8;
        if is_over {
            self.most = now;
        }
        is_over
    }
}

/// Makes the allocator give unused memory back, in a thread of its own.
#[cfg(target_env = "gnu")]
pub(crate) fn give_back() {
    // The walk over free memory takes longer than requests should wait.
    let walk = || {
        // SAFETY: the function may be called at any time, from any thread.
        unsafe { libc::malloc_trim(0) };
    };
    // Without a thread the memory stays allocated, which does no harm.
    let _ = std::thread::Builder::new().name("leeward-trim".into()).spawn(walk);
}

/// Does nothing: other libraries' allocators give memory back by themselves, or offer no such call.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_back() {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_receded_peak_is_reported_once() {
        let mut crowd = HighWaterMark::new(MANY_CONNECTIONS);
        let over: Vec<bool> = [0, 100, 2, 600, 590, 80, 74, 3, 0, 700, 0].map(|open| crowd.has_receded(open)).into();
        let expected = [false, false, false, false, false, false, true, false, false, false, true];
        assert_eq!(over, expected);
    }
}
