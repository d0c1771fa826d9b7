//! Mutexes with budgets. Does not contain waiting.

use super::lock_types::{LockStructure, delay_ns, end, init, with};
use crate::locks::{Kind, Wait};
use std::ffi::{c_char, c_int, c_void};

/// A mutex. `LW_MUTEX_INIT("name")` initializes it. Mutexes of one name share their statistics.
#[derive(Debug)]
#[repr(C)]
pub struct Mutex {
    /// The library's.
    pub lock: *mut c_void,
    /// Name in metrics and rejections, which is read at the first use.
    pub name: *const c_char,
}

impl LockStructure for Mutex {
    unsafe fn parts(of: *mut Self) -> (*mut *mut c_void, Kind, *const c_char) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*of).lock, Kind::Mutex, (*of).name) }
    }
}

/// Initializes a mutex, as `LW_MUTEX_INIT` does.
///
/// # Safety
/// `of` is NULL or points to memory for a mutex that is not in use; `name` is a text that lives
/// until the first use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_init(of: *mut Mutex, name: *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { init(of, name, Mutex { lock: std::ptr::null_mut(), name }) }
}

/// Locks, however long it takes. `LW_E_DEADLOCK`: this thread holds it.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_lock(of: *mut Mutex) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::Always)) }
}

/// Locks, unless the lock's oldest waiter has waited for longer than the request that this thread
/// runs may still wait, or the request has, once it is its turn (it does not stop waiting before).
/// A thread that runs none waits as `lw_mutex_lock` does. `LW_E_CONGESTED`: nothing is locked.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_lock_within(of: *mut Mutex) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::WithinBudget)) }
}

/// Locks, if the mutex is free. `LW_E_BUSY`: it is not.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_trylock(of: *mut Mutex) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.lock(Wait::Never)) }
}

/// Unlocks. `LW_E_STATE`: this thread does not hold it.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_unlock(of: *mut Mutex) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { with(of, |lock| lock.unlock()) }
}

/// Wait of the oldest waiter for the mutex, in nanoseconds; 0 without one.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_delay_ns(of: *mut Mutex) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { delay_ns(of) }
}

/// Ends the mutex, which no thread uses any more. `LW_E_BUSY`: it is held.
///
/// # Safety
/// `of` is as the module says, and made by its initializer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_destroy(of: *mut Mutex) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { end(of) }
}
