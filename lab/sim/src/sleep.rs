//! Sleep of idle cores, and the time to wake them. Does not contain the reasons for waking.

use crate::config::ServerModel;
use crate::threads::wakes::WakeTable;
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Sleep state of a server's cores.
pub(crate) struct CoreSleep {
    wake: WakeTable,
    /// Time at which each core last fell asleep.
    since: Vec<Time>,
    rng: Rng,
}

impl CoreSleep {
    /// Returns `None` if idle cores begin at once.
    pub(crate) fn from_config(server: &ServerModel, seed: u64) -> Option<Self> {
        let wake = server.wake.clone()?;
        Some(CoreSleep { wake, since: vec![Time::ZERO; server.cores as usize], rng: Rng::new(seed, Purpose::Wakes) })
    }

    /// Puts `core` to sleep.
    pub(crate) fn begin(&mut self, core: usize, now: Time) {
        self.since[core] = now;
    }

    /// Time to wake `core`.
    pub(crate) fn wake_delay(&mut self, core: usize, now: Time) -> Nanos {
        self.wake.at(now.since(self.since[core]), self.rng.unit())
    }
}
