//! Cancellation of the calling thread (`pthread_cancel(3)`). Does not contain calls in which a
//! thread may be cancelled.

use std::ffi::c_int;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Keeps the calling thread from being cancelled until the value is dropped. A cancelled thread
/// unwinds its stack, and Rust ends the process where that meets its frames.
pub(crate) struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let mut before = 0;
        // SAFETY: the number lives during the call.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state was the thread's own; NULL asks for nothing.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
