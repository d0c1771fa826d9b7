//! The CPU time that a control group may use, and how often it used it up: `cpu.stat` of both
//! versions of control groups.
//!
//! Contains no names of processes, and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};

/// A control group with a limit of CPU time.
#[derive(Debug)]
pub struct CpuQuota {
    group: PathBuf,
    before: Periods,
}

/// Periods of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Periods {
    all: u64,
    /// In which the group had used up its quota.
    throttled: u64,
}

/// How a quota stopped the threads of its group.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttling {
    /// Folder of the control group.
    pub group: PathBuf,
    /// CPUs that the group may use.
    pub cpus: f64,
    /// Length of a period in milliseconds.
    pub period_ms: f64,
    /// Share of the periods, from 0 to 1, in which it had used up its quota.
    pub share: f64,
}

impl CpuQuota {
    /// Returns the groups of a process that have a quota: its own, and those above it.
    pub fn of_process(pid: u32) -> Vec<CpuQuota> {
        let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
        let Some(groups) = process.and_then(|process| process.cgroups().ok()) else { return Vec::new() };
        let mounts = Process::myself().and_then(|process| process.mountinfo()).map_or(Vec::new(), |mounts| mounts.0);
        let mut found = Vec::new();
        for group in groups {
            let is_cpu = group.controllers.iter().any(|controller| controller == "cpu");
            if !is_cpu && group.hierarchy != 0 {
                continue;
            }
            let mount = mounts.iter().find(|mount| is_mount(mount, is_cpu));
            found.extend(mount.into_iter().flat_map(|mount| quotas(&mount.mount_point, &group.pathname)));
        }
        found
    }

    /// Returns the folder of the group.
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// Returns how the quota stopped threads since this was made; `None` if it did not.
    pub fn throttling(&self) -> Option<Throttling> {
        let now = Periods::of(&self.group)?;
        let throttled = now.throttled.saturating_sub(self.before.throttled);
        let all = now.all.saturating_sub(self.before.all).max(throttled);
        let (quota, period) = limit(&self.group)?;
        let share = throttled as f64 / all.max(1) as f64;
        let (cpus, period_ms) = (quota / period, period / 1000.0);
        (throttled > 0).then(|| Throttling { group: self.group.clone(), cpus, period_ms, share })
    }
}

/// Groups with a quota from the root of a mount down to a path below it.
fn quotas(mount: &Path, path: &str) -> Vec<CpuQuota> {
    let own = mount.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(mount));
    let with_quota = groups.filter(|group| limit(group).is_some());
    with_quota.filter_map(|group| Some(CpuQuota { group: group.into(), before: Periods::of(group)? })).collect()
}

fn is_mount(mount: &MountInfo, is_cpu: bool) -> bool {
    match is_cpu {
        true => mount.fs_type == "cgroup" && mount.super_options.contains_key("cpu"),
        false => mount.fs_type == "cgroup2",
    }
}

/// Returns quota and period in microseconds, if the group has a quota.
fn limit(group: &Path) -> Option<(f64, f64)> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<f64>(), period.parse::<f64>())
        }
        None => (read("cpu.cfs_quota_us")?.trim().parse(), read("cpu.cfs_period_us")?.trim().parse()),
    };
    let (quota, period) = (quota.ok()?, period.ok()?);
    (quota > 0.0 && period > 0.0).then_some((quota, period))
}

impl Periods {
    fn of(group: &Path) -> Option<Periods> {
        let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let values: BTreeMap<&str, u64> =
            lines.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?))).collect();
        Some(Periods { all: *values.get("nr_periods")?, throttled: *values.get("nr_throttled")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(group: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(group).unwrap();
        files.iter().for_each(|(name, text)| fs::write(group.join(name), text).unwrap());
    }

    #[test]
    fn a_quota_of_a_group_or_of_one_above_is_found_in_both_versions() {
        let mount = tempfile::tempdir().unwrap();
        let stat = "usage_usec 7\nnr_periods 100\nnr_throttled 4\nthrottled_usec 9\n";
        write(&mount.path().join("pod"), &[("cpu.max", "50000 100000\n"), ("cpu.stat", stat)]);
        write(&mount.path().join("pod/a"), &[("cpu.max", "max 100000\n"), ("cpu.stat", stat)]);
        let old = "nr_periods 100\nnr_throttled 4\nthrottled_time 9\n";
        write(
            &mount.path().join("pod/a/b"),
            &[("cpu.cfs_quota_us", "20000\n"), ("cpu.cfs_period_us", "10000\n"), ("cpu.stat", old)],
        );
        let found = quotas(mount.path(), "/pod/a/b");
        let groups: Vec<_> = found.iter().map(|quota| quota.group.clone()).collect();
        assert_eq!(groups, [mount.path().join("pod/a/b"), mount.path().join("pod")]);
        assert!(found.iter().all(|quota| quota.throttling().is_none()), "nothing happened since");
        for name in ["pod", "pod/a/b"] {
            fs::write(mount.path().join(name).join("cpu.stat"), "nr_periods 150\nnr_throttled 14\n").unwrap();
        }
        let [inner, outer] = [0, 1].map(|at| found[at].throttling().unwrap());
        assert_eq!((inner.cpus, inner.period_ms, inner.share), (2.0, 10.0, 0.2));
        assert_eq!((outer.cpus, outer.period_ms, outer.group), (0.5, 100.0, mount.path().join("pod")));
    }

    #[test]
    fn a_group_that_is_gone_or_unlimited_says_nothing() {
        let mount = tempfile::tempdir().unwrap();
        write(mount.path(), &[("cpu.max", "x"), ("cpu.stat", "nr_periods -\n")]);
        write(&mount.path().join("old"), &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
        assert!(quotas(mount.path(), "/old/gone").is_empty());
        // Whatever this machine has, it can be asked.
        CpuQuota::of_process(std::process::id()).iter().for_each(|quota| drop(quota.throttling()));
        assert!(CpuQuota::of_process(u32::MAX).is_empty());
    }
}
