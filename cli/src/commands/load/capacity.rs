//! Capacity of a server: the throughput of its cores' busy time, measured while so few clients are
//! active that no controller rejects. So it is the same under nearly every controller.

use std::time::Duration;

use leeward_core::units::Rate;
use leeward_rpc::client::Client;
use leeward_rpc::statistics::Statistics;
use leeward_services::definition::Target;

use super::served;
use crate::commands::statistics_source;
use crate::interrupt::Interrupt;

/// Active clients per core: the second one's request arrives while the first one's is executed.
const CLIENTS_PER_CORE: u64 = 2;

/// A server's counters before the closed loop, and the client that reads them again.
pub(super) struct CapacityMeter<'a> {
    client: Client,
    interrupt: &'a Interrupt,
    before: Statistics,
}

impl<'a> CapacityMeter<'a> {
    /// Reads the counters of the server at its TCP address. `None` if it does not send them: then
    /// the closed loop's throughput is the capacity.
    pub(super) fn start(server: &Target<'_>, interrupt: &'a Interrupt) -> Option<CapacityMeter<'a>> {
        let (client, before) = served::statistics(server, interrupt)?;
        Some(CapacityMeter { client, interrupt, before })
    }

    /// Number of active clients that keeps the cores busy without rejections.
    pub(super) fn active_clients(&self) -> u32 {
        u32::try_from(self.before.cores.saturating_mul(CLIENTS_PER_CORE)).unwrap_or(u32::MAX)
    }

    /// Capacity, at least the closed loop's `throughput`.
    pub(super) fn capacity(&self, throughput: Rate) -> Rate {
        let after = statistics_source::call(&self.client, self.interrupt, || {}).ok();
        let busy = after.and_then(|after| busy_throughput(&self.before, &after));
        Rate(busy.unwrap_or(0.0).max(throughput.0))
    }
}

/// Completed requests per second of busy time, times the number of cores. `None` if the cores were
/// never busy, or the counters are another server's.
fn busy_throughput(before: &Statistics, after: &Statistics) -> Option<f64> {
    let passed = |of: fn(&Statistics) -> u64| of(after).saturating_sub(of(before));
    let all = passed(|statistics| statistics.uptime_ns).checked_mul(after.cores)?;
    let busy = Duration::from_nanos(all.checked_sub(passed(|statistics| statistics.idle_ns))?);
    let answered = passed(|statistics| statistics.completed);
    (!busy.is_zero()).then(|| answered as f64 * after.cores as f64 / busy.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_left_out() {
        let statistics = |uptime_ns, idle_ns, completed| Statistics {
            uptime_ns,
            cores: 2,
            idle_ns,
            completed,
            ..Statistics::default()
        };
        let before = statistics(1_000_000_000, 2_000_000_000, 7);
        // Two cores were busy for 0.5 s in all, with 1,000 requests.
        let rate = busy_throughput(&before, &statistics(2_000_000_000, 3_500_000_000, 1_007)).unwrap();
        assert!((rate - 4_000.0).abs() < 1e-6, "{rate}");
        assert_eq!(busy_throughput(&before, &statistics(2_000_000_000, 4_000_000_000, 7)), None, "never busy");
        assert_eq!(busy_throughput(&before, &statistics(1_000_000_000, 9_000_000_000, 7)), None, "another server");
    }
}
