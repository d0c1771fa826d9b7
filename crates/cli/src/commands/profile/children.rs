//! Processes that a recorded program leaves behind: one that has just been forked may not have begun its trace yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::control::says_it_records;

/// How long a process may take to begin. One that never will, such as a program without the run-time in it, costs this once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until all processes that run with this setting in their environment have begun to record, or patience ends.
pub(super) fn wait_until_begun(setting: &str) {
    let began = Instant::now();
    while !running_with(setting).into_iter().all(says_it_records) && began.elapsed() < PATIENCE {
        sleep(PAUSE);
    }
}

/// Processes that run with this setting of `LEEWARD_PROFILE`, as far as we may read their environment.
fn running_with(setting: &str) -> Vec<u32> {
    let wanted = format!("LEEWARD_PROFILE={setting}");
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_it).collect()
}
