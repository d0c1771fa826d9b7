//! Processes that a recorded program leaves running when it ends, such as daemons. A process that was forked just before may
//! not have begun its trace yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::control::says_it_records;

/// Longest wait for a process to begin. A process that never begins, because the run-time is not in it, costs this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until all processes with this setting in their environment record, for [`PATIENCE`] at most.
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
