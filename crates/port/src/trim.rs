//! Giving memory back to the system that long requests have needed: the C library's allocator keeps it else.

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
