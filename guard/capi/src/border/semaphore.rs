//! Semaphores with budgets. Does not contain waiting.

use super::lock_types::{LockStructure, delay_ns, end, init, with};
use crate::locks::{Kind, Wait};
use crate::status::Failure;
use std::ffi::{c_char, c_int, c_void};

/// A semaphore. `LW_SEM_INIT("name", permits)` initializes it.
#[derive(Debug)]
#[repr(C)]
pub struct Semaphore {
    /// The library's.
    pub lock: *mut c_void,
    /// Name in metrics and rejections, which is read at the first use.
    pub name: *const c_char,
    /// Number of permits, at least 1, which is read at the first use.
    pub permits: u32,
}

impl LockStructure for Semaphore {
    unsafe fn parts(of: *mut Self) -> (*mut *mut c_void, Kind, *const c_char) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*of).lock, Kind::Semaphore((*of).permits), (*of).name) }
    }
}

/// Initializes a semaphore, as `LW_SEM_INIT` does.
///
/// # Safety
/// `of` is NULL or points to memory for a semaphore that is not in use; `name` is a text that lives
/// until the first use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_init(of: *mut Semaphore, name: *const c_char, permits: u32) -> c_int {
    if permits == 0 {
        return Failure::Argument as c_int;
    }
    // SAFETY: by the caller's promise.
    unsafe { init(of, name, Semaphore { lock: std::ptr::null_mut(), name, permits }) }
}

/// Takes a permit, however long it takes.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_wait(of: *mut Semaphore) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::Always)) }
}

/// Takes a permit, as long as the request's budget lasts (`lw_mutex_lock_within`).
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_wait_within(of: *mut Semaphore) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::WithinBudget)) }
}

/// Takes a permit, if one is free. `LW_E_BUSY`: none is.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_trywait(of: *mut Semaphore) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::Never)) }
}

/// Returns a permit; any thread may. `LW_E_STATE`: none is out.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_post(of: *mut Semaphore) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.unshare()) }
}

/// Wait of the oldest waiter for the semaphore, in nanoseconds; 0 without one.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_delay_ns(of: *mut Semaphore) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { delay_ns(of) }
}

/// Ends the semaphore, which no thread uses any more. `LW_E_BUSY`: it is held.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_sem_destroy(of: *mut Semaphore) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { end(of) }
}
