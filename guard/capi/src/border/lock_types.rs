//! The lock behind a structure of C, which is made at its first use, and what all structures do
//! alike. Does not contain the structures.

use super::pointers::{text, write};
use super::types::LW_OK;
use crate::fork;
use crate::locks::{Kind, TrackedLock};
use crate::status::{Failure, caught};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Address of a destroyed lock: never one of a lock, which is aligned.
const DESTROYED: usize = 1;

/// A structure of C with a lock behind it.
pub(super) trait LockStructure {
    /// The field for the lock's address, and the lock's kind and name.
    ///
    /// # Safety
    /// `of` points to a structure that its initializer has made, and that the caller keeps alive.
    unsafe fn parts(of: *mut Self) -> (*mut *mut c_void, Kind, *const c_char);
}

/// Initializes a structure, as its initializer in C does, but checks the name at once.
///
/// # Safety
/// `of` is NULL or points to memory for a structure that is not in use; `name` is NULL or a text.
pub(super) unsafe fn init<S: LockStructure>(of: *mut S, name: *const c_char, value: S) -> c_int {
    caught(|| {
        // SAFETY: by the caller's promise.
        unsafe {
            text(name)?;
            write(of, value)
        }
        .map(|()| LW_OK)
    })
}

/// Calls `call` with the lock behind a structure.
///
/// # Safety
/// `of` is NULL or as for [`LockStructure::parts`], and as for [`lock`].
#[inline]
pub(super) unsafe fn with<S: LockStructure>(
    of: *mut S,
    call: impl FnOnce(&TrackedLock) -> Result<(), Failure>,
) -> c_int {
    caught(|| {
        if of.is_null() || !of.is_aligned() {
            return Err(Failure::Argument);
        }
        // SAFETY: not NULL, and the rest by the caller's promise.
        let (place, kind, name) = unsafe { S::parts(of) };
        // SAFETY: by the caller's promise.
        call(unsafe { lock(place, kind, name) }?).map(|()| LW_OK)
    })
}

/// Wait of the oldest waiter for the lock, in nanoseconds; 0 without one, and on errors.
///
/// # Safety
/// As for [`with`].
pub(super) unsafe fn delay_ns<S: LockStructure>(of: *mut S) -> u64 {
    let mut delay = 0;
    // SAFETY: by the caller's promise.
    let _ = unsafe {
        with(of, |lock| {
            delay = lock.delay_ns();
            Ok(())
        })
    };
    delay
}

/// Ends the lock behind a structure.
///
/// # Safety
/// As for [`with`], and no thread uses the lock now or waits for it.
pub(super) unsafe fn end<S: LockStructure>(of: *mut S) -> c_int {
    caught(|| {
        if of.is_null() || !of.is_aligned() {
            return Err(Failure::Argument);
        }
        // SAFETY: not NULL, and the rest by the caller's promise.
        let (place, ..) = unsafe { S::parts(of) };
        // SAFETY: by the caller's promise.
        unsafe { destroy(place) }.map(|()| LW_OK)
    })
}

/// The lock whose address is stored at `place`.
///
/// # Safety
/// `place` is NULL or points to a pointer that is NULL or was written by this module, and that
/// lives for `'a`; no thread destroys the lock meanwhile. `name` is NULL or a text.
#[inline]
unsafe fn lock<'a>(place: *mut *mut c_void, kind: Kind, name: *const c_char) -> Result<&'a TrackedLock, Failure> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::Argument);
    }
    // SAFETY: aligned and alive by the caller's promise; all accesses are atomic.
    let place = unsafe { AtomicPtr::from_ptr(place) };
    let known = place.load(Ordering::Acquire);
    match known.addr() {
        0 => {
            // SAFETY: NULL or a text, by the caller's promise.
            let name = unsafe { text(name) }?;
            make(place, kind, name)
        }
        DESTROYED => Err(Failure::State),
        // SAFETY: written by `make`, and not destroyed, by the caller's promise.
        _ => Ok(unsafe { &*known.cast::<TrackedLock>() }),
    }
}

#[cold]
fn make<'a>(place: &AtomicPtr<c_void>, kind: Kind, name: &str) -> Result<&'a TrackedLock, Failure> {
    if kind == Kind::Semaphore(0) {
        return Err(Failure::Argument);
    }
    let _held = fork::install().map(|()| fork::hold())?;
    let name = if name.is_empty() { "(unnamed)" } else { name };
    let made = Box::into_raw(Box::new(TrackedLock::new(kind, name)));
    match place.compare_exchange(std::ptr::null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made; it lives until `destroy`.
        Ok(_) => Ok(unsafe { &*made }),
        Err(other) => {
            // SAFETY: no other thread has seen this one.
            drop(unsafe { Box::from_raw(made) });
            match other.addr() {
                DESTROYED => Err(Failure::State),
                // SAFETY: written by another thread here.
                _ => Ok(unsafe { &*other.cast::<TrackedLock>() }),
            }
        }
    }
}

/// Ends the lock.
///
/// # Safety
/// As for [`lock`], and no thread uses the lock now or waits for it.
unsafe fn destroy(place: *mut *mut c_void) -> Result<(), Failure> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::Argument);
    }
    // SAFETY: as in `lock`.
    let place = unsafe { AtomicPtr::from_ptr(place) };
    let known = place.load(Ordering::Acquire);
    let made = match known.addr() {
        0 => None,
        DESTROYED => return Err(Failure::State),
        // SAFETY: as in `lock`.
        _ if unsafe { &*known.cast::<TrackedLock>() }.is_held() => return Err(Failure::Busy),
        _ => Some(known.cast::<TrackedLock>()),
    };
    let destroyed = std::ptr::without_provenance_mut(DESTROYED);
    if place.compare_exchange(known, destroyed, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(Failure::Busy);
    }
    if let Some(made) = made {
        // SAFETY: made by `make`; this thread alone has replaced it, and no thread uses it.
        drop(unsafe { Box::from_raw(made) });
    }
    Ok(())
}
