//! Capacity of a server, by what its cores did while a few clients asked again and again: too few for any controller to refuse
//! one. Moments in which cores had no work are left out, so that the capacity is the server's under every controller.

use std::time::Duration;

use leeward_control::units::Rate;
use leeward_rpc::client::Client;
use leeward_rpc::statistics::{METHOD, Statistics};
use leeward_services::case::Target;

/// Clients per core: while one is answered the other asks.
const PER_CORE: u64 = 2;

/// A server before the closed loop.
pub(super) struct Meter {
    client: Client,
    before: Statistics,
}

impl Meter {
    /// Asks the server for its counts. `None` if it does not say them.
    pub(super) fn begin(server: &Target<'_>) -> Option<Meter> {
        let client = server.client().ok()?;
        let before = statistics(&client)?;
        Some(Meter { client, before })
    }

    /// Clients that keep the cores at work, and have nobody refused.
    pub(super) fn askers(&self) -> u32 {
        u32::try_from(self.before.cores.saturating_mul(PER_CORE)).unwrap_or(u32::MAX)
    }

    /// Requests per second with no core ever idle, where the loop had `throughput` answers per second.
    pub(super) fn capacity(&self, throughput: Rate) -> Rate {
        let without_idleness = statistics(&self.client).and_then(|after| between(&self.before, &after));
        Rate(without_idleness.unwrap_or(0.0).max(throughput.0))
    }
}

fn statistics(client: &Client) -> Option<Statistics> {
    let answer = client.call_blocking(METHOD, "").ok()?;
    Statistics::parse(&answer.payload).ok()
}

/// Answers per second of the time in which cores were not idle, all of them together.
fn between(before: &Statistics, after: &Statistics) -> Option<f64> {
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
        let told = |uptime_ns, idle_ns, completed| Statistics {
            uptime_ns,
            cores: 2,
            idle_ns,
            completed,
            ..Statistics::default()
        };
        let before = told(1_000_000_000, 2_000_000_000, 7);
        // Two cores were busy for 0.5 s in all, with 1,000 requests.
        let rate = between(&before, &told(2_000_000_000, 3_500_000_000, 1_007)).unwrap();
        assert!((rate - 4_000.0).abs() < 1e-6, "{rate}");
        assert_eq!(between(&before, &told(2_000_000_000, 4_000_000_000, 7)), None, "never busy");
        assert_eq!(between(&before, &told(1_000_000_000, 9_000_000_000, 7)), None, "another server");
    }
}
