//! Whether the machine did anything else meanwhile: what a measurement says is worth nothing if a
//! compiler has had half of the service's CPU.

use crate::process::{PROXY_CPU, Process, SERVICE_CPU};
use std::time::{Duration, Instant};

/// Share of either CPU that others may take.
pub(crate) const MOST: f64 = 0.05;
/// Unit of `/proc/stat`: Linux has 100 per second on every usual architecture.
const JIFFY: Duration = Duration::from_millis(10);

/// CPU times at the beginning of a measurement.
pub(crate) struct Watch<'a> {
    service: &'a Process,
    proxy: Option<&'a Process>,
    start: Instant,
    before: [Duration; 2],
}

impl<'a> Watch<'a> {
    pub(crate) fn start(service: &'a Process, proxy: Option<&'a Process>) -> Self {
        let mut watch = Watch { service, proxy, start: Instant::now(), before: [Duration::ZERO; 2] };
        watch.before = watch.foreign();
        watch
    }

    /// The larger of both CPUs' shares that went to others since the start.
    pub(crate) fn share(&self) -> f64 {
        let spent = self.start.elapsed().as_secs_f64().max(1e-3);
        let shares = self.foreign().into_iter().zip(self.before);
        shares.map(|(now, before)| now.saturating_sub(before).as_secs_f64() / spent).fold(0.0, f64::max)
    }

    /// CPU time that neither the service nor the proxy nor this program has had, per CPU.
    fn foreign(&self) -> [Duration; 2] {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = Duration::try_from(own).unwrap_or_default() + self.proxy.map_or(Duration::ZERO, Process::cpu_time);
        let of = |cpu, mine| busy(&stat, cpu).unwrap_or(mine).saturating_sub(mine);
        // Both totals began before the processes did, so the difference never falls below zero.
        [of(SERVICE_CPU, self.service.cpu_time()), of(PROXY_CPU, own)]
    }
}

/// Time that a CPU has been busy since the boot, interrupts left out: no process has them.
fn busy(stat: &str, cpu: usize) -> Option<Duration> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    let columns: Vec<u32> = line.split(' ').skip(1).filter_map(|column| column.parse().ok()).collect();
    let [user, nice, system, _, _, _, _, steal] = columns.get(..8)?.try_into().ok()?;
    Some(JIFFY * (user + nice + system + steal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_interrupts_are_not_busy() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 200 300 400 4 0 0\ncpu1 10 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy(stat, 0), Some(JIFFY * 10));
        assert_eq!(busy(stat, 1), Some(JIFFY * 10));
        assert_eq!(busy(stat, 2), None);
    }
}
