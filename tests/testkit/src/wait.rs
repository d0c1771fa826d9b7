//! Waiting with a timeout: a condition that never holds fails by name.

use std::time::{Duration, Instant};

/// Time after which a test fails: long, because machines are busy.
pub const LIVENESS: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true.
///
/// # Panics
/// If `holds` returns false for [`LIVENESS`]; the message names `what`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIVENESS, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
