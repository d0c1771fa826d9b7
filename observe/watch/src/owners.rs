//! Processes that hold sockets, by `/proc/PID/fd`.

use std::collections::HashSet;

use procfs::process::{FDTarget, Process, all_processes};

/// Processes that hold one of the sockets `inodes`, with what could be seen.
///
/// Other users' processes hide their descriptors from an ordinary user; they are left out.
pub(crate) fn holders(inodes: &HashSet<u32>) -> Vec<u32> {
    let Ok(processes) = all_processes() else { return Vec::new() };
    let mut found: Vec<u32> = processes
        .flatten()
        .filter(|process| sockets(process).any(|inode| inodes.contains(&inode)))
        .map(|process| process.pid as u32)
        .collect();
    found.sort_unstable();
    found
}

/// Sockets of a process.
pub(crate) fn sockets(process: &Process) -> impl Iterator<Item = u32> {
    process.fd().into_iter().flatten().flatten().filter_map(|descriptor| match descriptor.target {
        FDTarget::Socket(inode) => u32::try_from(inode).ok(),
        _ => None,
    })
}

/// Sockets of these processes.
pub(crate) fn held_by(pids: &HashSet<u32>) -> HashSet<u32> {
    let processes = pids.iter().filter_map(|pid| Process::new(i32::try_from(*pid).ok()?).ok());
    processes.flat_map(|process| sockets(&process).collect::<Vec<_>>()).collect()
}

/// A process with its children and their children.
pub(crate) fn family(root: u32) -> HashSet<u32> {
    let mut family = HashSet::from([root]);
    let Ok(processes) = all_processes() else { return family };
    let parents: Vec<(u32, u32)> = processes
        .flatten()
        .filter_map(|process| process.stat().ok())
        .map(|stat| (stat.pid as u32, stat.ppid as u32))
        .collect();
    // Children may stand before their parents in the list.
    loop {
        let before = family.len();
        for (pid, parent) in &parents {
            if family.contains(parent) {
                family.insert(*pid);
            }
        }
        if family.len() == before {
            return family;
        }
    }
}
