//! Tests that watch the clock: beside others of their program they would see those instead.
//!
//! `cargo test` runs a crate's test programs one after the other, so that a lock within the program is enough. The crates
//! keep such tests in a program of their own (`tests/alone.rs`), where every test begins with [`alone`]. Under
//! cargo-nextest, where each test is a process, `.config/nextest.toml` gives the same programs the whole machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

static SERIAL: Mutex<()> = Mutex::new(());

/// Waits until no other test of this program runs that called this; the guard keeps them out.
#[must_use = "the guard keeps the others out"]
pub fn serial_guard() -> MutexGuard<'static, ()> {
    // A test that failed says so itself.
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}
