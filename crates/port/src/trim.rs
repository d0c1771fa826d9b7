//! Giving memory back to the system that long requests, or a crowd of connections, have needed: the C library's allocator keeps it
//! else.

/// Connections that are a crowd: their buffers are 16 MB and more.
const CROWD: usize = 512;

/// Watch over the number of a core's connections.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The most that there have been since the last crowd was over.
    most: usize,
}

impl Crowd {
    /// There are so many connections now: whether there were many, and hardly any are left. Says so once.
    pub(crate) fn is_over(&mut self, open: usize) -> bool {
        self.most = self.most.max(open);
        let is_over = self.most >= CROWD && open < self.most / 8;
        if is_over {
            self.most = open;
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
        let mut crowd = Crowd::default();
        let over: Vec<bool> = [0, 100, 2, 600, 590, 80, 74, 3, 0, 700, 0].map(|open| crowd.is_over(open)).into();
        let expected = [false, false, false, false, false, false, true, false, false, false, true];
        assert_eq!(over, expected);
    }
}
