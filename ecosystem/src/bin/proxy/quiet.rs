//! Whether other programs disturbed a measurement: what it says is worth nothing if a compiler has
//! had half of the service's CPU.
//!
//! A CPU's time that others had counts as far as ours were ready to run and had to wait. What runs
//! at a lower priority while ours sleep does no harm.

use crate::process::{Times, times};
use std::time::{Duration, Instant};

/// Share of a CPU that others may take.
pub(crate) const MOST: f64 = 0.05;
/// Unit of `/proc/stat`: Linux has 100 per second on every usual architecture.
const JIFFY: Duration = Duration::from_millis(10);

/// Times at the beginning of a measurement.
pub(crate) struct Watch {
    start: Instant,
    before: [Account; 2],
}

/// What was done on one CPU since the boot.
#[derive(Clone, Copy, Debug)]
struct Account {
    busy: Duration,
    ours: Times,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Watch { start: Instant::now(), before: accounts() }
    }

    /// Time that others took from ours since the start, as a share of a CPU.
    pub(crate) fn share(&self) -> f64 {
        let taken: Duration = accounts().into_iter().zip(self.before).map(|(now, before)| taken(now, before)).sum();
        taken.as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-3)
    }
}

fn taken(now: Account, before: Account) -> Duration {
    let since = |pick: fn(&Account) -> Duration| pick(&now).saturating_sub(pick(&before));
    let others = since(|account| account.busy).saturating_sub(since(|account| account.ours.ran));
    others.min(since(|account| account.ours.delayed))
}

fn accounts() -> [Account; 2] {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ours = times();
    [0, 1].map(|cpu| Account { busy: busy(&stat, cpu).unwrap_or_default(), ours: ours[cpu] })
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
    fn others_disturb_only_what_waits_for_them() {
        let ms = Duration::from_millis;
        let account =
            |busy, ran, delayed| Account { busy: ms(busy), ours: Times { ran: ms(ran), delayed: ms(delayed) } };
        let taken = |now| taken(now, account(1_000, 200, 50));
        assert_eq!(taken(account(2_000, 300, 60)), ms(10), "others had 900 ms, mostly while ours slept");
        assert_eq!(taken(account(2_000, 1_190, 5_000)), ms(10), "ours waited for each other");
        assert_eq!(taken(account(2_000, 300, 950)), ms(900));
    }

    #[test]
    fn idle_time_and_interrupts_are_not_busy() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 200 300 400 4 0 0\ncpu1 10 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy(stat, 0), Some(JIFFY * 10));
        assert_eq!(busy(stat, 1), Some(JIFFY * 10));
        assert_eq!(busy(stat, 2), None);
    }
}
