//! Child processes: a gate of the parent is unusable there, and a fork waits for changes of shared
//! state. Does not contain gates.
//!
//! A child has one thread. The parent's other threads may have held any lock of a gate when the
//! process was copied, so a child must not touch the parent's gates; it may make its own.
#![allow(unsafe_code)]

use crate::status::{Failure, uncancelled};
use crate::{log, thread};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Held while shared state changes, and during a fork.
static CHANGES: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread holds `CHANGES`: a log function may call the library, or fork.
    static IS_HOLDING: Cell<bool> = const { Cell::new(false) };
    static FORKING: Cell<Option<Held>> = const { Cell::new(None) };
}

/// Keeps other threads from forking.
pub(crate) struct Held(#[expect(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl Drop for Held {
    fn drop(&mut self) {
        IS_HOLDING.with(|cell| cell.set(false));
    }
}

/// Number that differs between a process and its children.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Keeps other threads from forking until the value is dropped; `None`: this thread does already.
pub(crate) fn hold() -> Option<Held> {
    if IS_HOLDING.with(Cell::get) {
        return None;
    }
    let held = Held(CHANGES.lock().unwrap_or_else(PoisonError::into_inner));
    IS_HOLDING.with(|cell| cell.set(true));
    Some(held)
}

/// Runs the body of a C function that changes what all threads share. A fork waits until it ends.
pub(crate) fn shared_change(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    uncancelled(|| {
        log::install_panic_hook();
        thread::number();
        install()?;
        let _held = hold();
        body()
    })
}

/// Registers the handlers, once.
pub(crate) fn install() -> Result<(), Failure> {
    static ONCE: Once = Once::new();
    static RESULT: AtomicU32 = AtomicU32::new(0);
    ONCE.call_once(|| {
        // SAFETY: the three handlers are functions of this library, which stays loaded
        // (`-z nodelete`), and they don't unwind.
        let result = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        RESULT.store(u32::from(result != 0), Ordering::Relaxed);
    });
    if RESULT.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Failure::System) }
}

extern "C" fn before() {
    let _ = FORKING.try_with(|cell| cell.set(hold()));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(Cell::take);
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    thread::forget_running();
    let _ = FORKING.try_with(Cell::take);
}
