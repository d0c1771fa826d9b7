//! Read-write locks with budgets. Does not contain waiting.

use super::lock_types::{LockStructure, delay_ns, end, init, with};
use crate::locks::{Kind, Wait};
use std::ffi::{c_char, c_int, c_void};

/// A read-write lock. `LW_RWLOCK_INIT("name")` initializes it. Waiters are served in order of
/// arrival, so a thread that reads must not read again before it unlocks.
#[derive(Debug)]
#[repr(C)]
pub struct RwLock {
    /// The library's.
    pub lock: *mut c_void,
    /// Name in metrics and rejections, which is read at the first use.
    pub name: *const c_char,
}

impl LockStructure for RwLock {
    unsafe fn parts(of: *mut Self) -> (*mut *mut c_void, Kind, *const c_char) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*of).lock, Kind::RwLock, (*of).name) }
    }
}

/// Initializes a lock, as `LW_RWLOCK_INIT` does.
///
/// # Safety
/// `of` is NULL or points to memory for a lock that is not in use; `name` is a text that lives
/// until the first use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_init(of: *mut RwLock, name: *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { init(of, name, RwLock { lock: std::ptr::null_mut(), name }) }
}

/// Locks for reading, however long it takes.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_read(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::Always)) }
}

/// Locks for writing, however long it takes.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_write(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::Always)) }
}

/// Locks for reading, as long as the request's budget lasts (`lw_mutex_lock_within`).
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_read_within(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::WithinBudget)) }
}

/// Locks for writing, as long as the request's budget lasts (`lw_mutex_lock_within`).
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_write_within(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::WithinBudget)) }
}

/// Locks for reading, if no writer holds the lock or waits. `LW_E_BUSY`: one does.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_tryread(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.share(Wait::Never)) }
}

/// Locks for writing, if the lock is free. `LW_E_BUSY`: it is not.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_trywrite(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::Never)) }
}

/// Unlocks a reader or the writer. `LW_E_STATE`: no reader holds it, nor this thread as a writer.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_unlock(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| if lock.is_mine() { lock.unlock() } else { lock.unshare() }) }
}

/// Wait of the oldest waiter for the lock, in nanoseconds; 0 without one.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_delay_ns(of: *mut RwLock) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { delay_ns(of) }
}

/// Ends the lock, which no thread uses any more. `LW_E_BUSY`: it is held.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_destroy(of: *mut RwLock) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { end(of) }
}
