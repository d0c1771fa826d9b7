//! Patience: what will come is waited for, and what does not come fails with a name.

use std::time::{Duration, Instant};

/// How long anything may take before a test has failed: long, because machines are busy.
pub const LIVENESS: Duration = Duration::from_secs(60);

/// Waits until `holds`.
///
/// # Panics
/// If it does not within [`LIVENESS`]; the message names `what`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIVENESS, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
