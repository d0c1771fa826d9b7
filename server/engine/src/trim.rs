//! Giving memory back to the system that long requests, answers that nobody took, or a crowd of connections have needed: the C
//! library's allocator keeps it else.

/// Connections that are a crowd: their buffers are 16 MB and more.
pub(crate) const MANY_CONNECTIONS: usize = 512;
/// As much as is worth giving back to the system, in bytes.
pub(crate) const MANY_BYTES: usize = 8 << 20;

/// Watch over a number that rises and falls, of connections or bytes.
#[derive(Debug)]
pub(crate) struct HighWaterMark {
    /// The least number that counts as high.
    high: usize,
    /// The largest number since the last high tide was over.
    most: usize,
}

impl HighWaterMark {
    /// A tide that is high from `high` on.
    pub(crate) fn new(high: usize) -> Self {
        HighWaterMark { high, most: 0 }
    }

    /// Notes the number of now.
    pub(crate) fn note(&mut self, now: usize) {
        self.most = self.most.max(now);
    }

    /// Whether the number was high and hardly anything is left of it. Says so once.
    pub(crate) fn has_receded(&mut self, now: usize) -> bool {
        self.note(now);
        let is_over = self.most >= self.high && now < self.most / 8;
        if is_over {
            self.most = now;
        }
        is_over
    }
}

/// Has the allocator give back what it does not need, beside whatever the caller goes on with.
#[cfg(target_env = "gnu")]
pub(crate) fn give_back() {
    // Its walk over free memory takes longer than requests should wait.
    let walk = || {
        // SAFETY: the function may be called at any time, from any thread.
        unsafe { libc::malloc_trim(0) };
    };
    // Without a thread for it the memory stays, which harms nobody.
    let _ = std::thread::Builder::new().name("leeward-trim".into()).spawn(walk);
}

/// Other libraries' allocators do by themselves, or can't be asked.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_back() {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_over_once() {
        let mut crowd = HighWaterMark::new(MANY_CONNECTIONS);
        let over: Vec<bool> = [0, 100, 2, 600, 590, 80, 74, 3, 0, 700, 0].map(|open| crowd.has_receded(open)).into();
        let expected = [false, false, false, false, false, false, true, false, false, false, true];
        assert_eq!(over, expected);
    }
}
