//! One-line identity of a machine, which distinguishes the measurements of different machines.

use std::fs;

/// Identity of this machine: processor, number of CPUs, CPUs of the server, kernel.
pub fn machine_identity(server: usize) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let [model, kernel] = [model.unwrap_or_default(), &kernel].map(|text| match text.trim() {
        "" => "unknown".to_string(),
        text => text.to_string(),
    });
    format!("{model}, {cpus} CPUs, {server} for the server, Linux {kernel}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_machine_has_the_same_name() {
        assert_eq!(machine_identity(1), machine_identity(1));
        assert_ne!(machine_identity(1), machine_identity(2));
    }
}
