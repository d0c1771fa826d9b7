//! Serial execution of tests that measure time: tests beside them would disturb the measurement.
//!
//! `cargo test` runs a crate's test programs one after the other, so a lock within the program
//! suffices. The crates keep such tests in a separate program named `alone`, where every test
//! begins with [`serial_guard`]. Under cargo-nextest, where each test is a process,
//! `.config/nextest.toml` gives these programs the whole machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

static SERIAL: Mutex<()> = Mutex::new(());

/// Waits until no other test of this program holds the guard, and returns the guard.
#[must_use = "the guard keeps the others out"]
pub fn serial_guard() -> MutexGuard<'static, ()> {
    // A failed test reports its own failure.
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}
