//! CPU quotas of control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;

/// Control group of a process that limits its CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaReader {
    /// Folders from the process's own group up to the root of what is mounted.
    groups: Vec<PathBuf>,
}

/// Throttling of the group that is throttled most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Throttling {
    /// Periods that have ended.
    pub(crate) periods: u64,
    /// Periods in which the group was throttled.
    pub(crate) throttled_periods: u64,
    /// Time for which it was throttled, summed over CPUs.
    pub(crate) throttled: Duration,
    /// CPUs that the quota allows.
    pub(crate) cpus: Option<f64>,
}

impl QuotaReader {
    /// Finds the groups of a process, where their file system is mounted.
    pub(crate) fn of(process: &Process) -> Option<QuotaReader> {
        let groups = process.cgroups().ok()?;
        let mounts = Process::myself().ok()?.mountinfo().ok()?;
        mounts.0.iter().find_map(|mount| {
            let path = match mount.fs_type.as_str() {
                "cgroup2" => groups.0.iter().find(|group| group.hierarchy == 0),
                "cgroup" if mount.super_options.contains_key("cpu") => {
                    groups.0.iter().find(|group| group.controllers.iter().any(|name| name == "cpu"))
                }
                _ => None,
            }?;
            // In a container, a part of the hierarchy is mounted.
            let inside = Path::new(&path.pathname).strip_prefix(&mount.root).ok()?;
            let own = mount.mount_point.join(inside);
            let groups: Vec<PathBuf> = own
                .ancestors()
                .take_while(|folder| folder.starts_with(&mount.mount_point))
                .filter(|folder| folder.join("cpu.stat").exists())
                .map(Path::to_path_buf)
                .collect();
            (!groups.is_empty()).then_some(QuotaReader { groups })
        })
    }

    /// Whether one of the groups is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        let frozen = |folder: &PathBuf| {
            fs::read_to_string(folder.join("cgroup.events"))
                .is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
        };
        self.groups.iter().any(frozen)
    }

    /// Throttling so far, of the group that has been throttled longest.
    pub(crate) fn read(&self) -> Throttling {
        let all = self.groups.iter().filter_map(|folder| {
            let counters = parse_stat(&fs::read_to_string(folder.join("cpu.stat")).ok()?);
            Some(Throttling { cpus: limit(folder), ..counters })
        });
        all.max_by_key(|group| group.throttled).unwrap_or_default()
    }
}

/// CPUs that a group's quota allows.
fn limit(folder: &Path) -> Option<f64> {
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<f64>().ok();
    match fs::read_to_string(folder.join("cpu.max")) {
        Ok(text) => parse_max(&text),
        Err(_) => {
            let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
            (quota > 0.0 && period > 0.0).then_some(quota / period)
        }
    }
}

/// Reads `cpu.max`: quota and period in microseconds, or `max`.
fn parse_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// Reads `cpu.stat` of either version.
fn parse_stat(text: &str) -> Throttling {
    let mut throttling = Throttling::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match name {
            "nr_periods" => throttling.periods = value,
            "nr_throttled" => throttling.throttled_periods = value,
            "throttled_usec" => throttling.throttled = Duration::from_micros(value),
            "throttled_time" => throttling.throttled = Duration::from_nanos(value),
            _ => {}
        }
    }
    throttling
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_counters_are_read() {
        let second = parse_stat("usage_usec 7\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250000\nnr_bursts 0\n");
        let first = parse_stat("nr_periods 10\nnr_throttled 4\nthrottled_time 250000000\n");
        let expected =
            Throttling { periods: 10, throttled_periods: 4, throttled: Duration::from_millis(250), cpus: None };
        assert_eq!((first, second), (expected, expected));
        assert_eq!(parse_stat("garbage\n\nnr_periods x"), Throttling::default());
    }

    #[test]
    fn a_quota_is_a_number_of_cpus() {
        assert_eq!(parse_max("50000 100000\n"), Some(0.5));
        for text in ["max 100000", "", "5", "0 0", "-1 100000", "1 0"] {
            assert_eq!(parse_max(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_of_the_kernel_is_read(text in "\\PC{0,80}") {
            parse_stat(&text);
            parse_max(&text);
        }
    }
}
