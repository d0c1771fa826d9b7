//! System resources: CPUs to pin to, CPU times, the limit of open files.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Open files besides the connections.
const OTHER_FILES: u64 = 256;

/// CPUs that this process may use, by the kernel's numbers.
pub(crate) fn cpus() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    ensure!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }), "can't run on CPU {cpu}");
    Ok(())
}

/// CPU time that the calling thread has used.
pub(crate) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// CPU time that process `id` has used, in user and kernel mode.
///
/// The resolution is the kernel's tick, usually 10 ms.
///
/// # Errors
/// The process does not exist.
pub(crate) fn cpu_time_of(id: u32) -> Result<Duration> {
    let path = format!("/proc/{id}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let ticks = ticks(&text).with_context(|| format!("{path} is not as expected"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Sum of fields 14 and 15 of proc(5)'s stat. Counting starts after the name, which may contain any
/// character.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Raises the limit of open files to hold `connections`, as far as the system allows.
pub(crate) fn allow_connections(connections: u32) {
    let wanted = u64::from(connections) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        // If the limit stays too low, connecting fails with an error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_parsed_after_the_process_name() {
        let line = "42 (a ) name) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0";
        assert_eq!(ticks(line), Some(333));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn this_process_has_used_some_time() {
        assert!(cpu_time_of(std::process::id()).is_ok());
        assert!(cpu_time_of(u32::MAX).is_err());
    }
}
