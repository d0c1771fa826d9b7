//! Whether the machine did anything else meanwhile: what a measurement says is worth nothing if a
//! compiler has had half of the service's CPU.

use crate::process::{PROXY_CPU, SERVICE_CPU, total_cpu_time};
use std::time::{Duration, Instant};

/// Share of a CPU that others may take.
pub(crate) const MOST: f64 = 0.05;
/// Unit of `/proc/stat`: Linux has 100 per second on every usual architecture.
const JIFFY: Duration = Duration::from_millis(10);

/// CPU times at the beginning of a measurement.
pub(crate) struct Watch {
    start: Instant,
    foreign: Duration,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Watch { start: Instant::now(), foreign: foreign() }
    }

    /// CPU time that others have had on both CPUs since the start, as a share of one.
    pub(crate) fn share(&self) -> f64 {
        foreign().saturating_sub(self.foreign).as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-3)
    }
}

/// CPU time that neither this program nor its children have had, since the boot.
fn foreign() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all: Duration = [SERVICE_CPU, PROXY_CPU].into_iter().filter_map(|cpu| busy(&stat, cpu)).sum();
    all.saturating_sub(total_cpu_time())
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
