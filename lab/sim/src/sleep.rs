//! Cores that sleep while they are idle, and how long it takes to wake them. Never here: who wakes
//! them, and for what.

use crate::config::ServerModel;
use crate::threads::wakes::WakeTable;
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Sleep of a server's cores.
pub(crate) struct CoreSleep {
    wake: WakeTable,
    /// When each core fell asleep last.
    since: Vec<Time>,
    rng: Rng,
}

impl CoreSleep {
    /// `None` where idle cores begin at once.
    pub(crate) fn from_config(server: &ServerModel, seed: u64) -> Option<Self> {
        let wake = server.wake.clone()?;
        Some(CoreSleep { wake, since: vec![Time::ZERO; server.cores as usize], rng: Rng::new(seed, Purpose::Wakes) })
    }

    /// `core` has nothing to do.
    pub(crate) fn begin(&mut self, core: usize, now: Time) {
        self.since[core] = now;
    }

    /// Time that it takes to wake `core`.
    pub(crate) fn wake_delay(&mut self, core: usize, now: Time) -> Nanos {
        self.wake.at(now.since(self.since[core]), self.rng.unit())
    }
}
