//! Finds processes that a recorded program leaves running when it ends, such as daemons. A process
//! that was forked just before may not have started its trace yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::control::is_process_recording;

/// Longest wait for processes to start recording. A process without the run-time never starts, and
/// costs this time.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until all processes with this setting in their environment record, for at most
/// `START_TIMEOUT`.
pub(super) fn wait_for_recording(setting: &str) {
    let began = Instant::now();
    while !find_processes(setting).into_iter().all(is_process_recording) && began.elapsed() < START_TIMEOUT {
        sleep(POLL_INTERVAL);
    }
}

/// Processes that run with this setting of `LEEWARD_PROFILE`, as far as their environment is
/// readable.
fn find_processes(setting: &str) -> Vec<u32> {
    let wanted = format!("LEEWARD_PROFILE={setting}");
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_it).collect()
}
