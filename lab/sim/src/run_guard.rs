//! Early ends of a run: too many events at one instant, whose mutual causes would stop simulated
//! time, or the caller's stop flag.

use crate::SimError;
use crate::config::SimConfig;
use leeward_core::units::Time;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of events that any run may have at one instant.
const ANY: u64 = 1_000_000;
/// Additional events per client: all clients may time out, get replies and send at once.
const PER_CLIENT: u64 = 64;

/// Counter of the current instant's events, with the stop flag.
#[derive(Clone, Debug)]
pub(crate) struct RunGuard<'a> {
    now: Time,
    events: u64,
    limit: u64,
    policy: String,
    stop: &'a AtomicBool,
}

impl<'a> RunGuard<'a> {
    /// Creates the guard of a run of `config` with the controller `algorithm`; setting `stop` ends
    /// the run.
    pub(crate) fn new(config: &SimConfig, algorithm: &str, stop: &'a AtomicBool) -> Self {
        let policy = match &config.server.scheduling {
            Some(scheduling) => format!("allocator `{}`", scheduling.allocator),
            None => format!("controller `{algorithm}`"),
        };
        let max_events = ANY + PER_CLIENT * u64::from(config.workload.clients);
        RunGuard { now: Time::ZERO, events: 0, limit: max_events, policy, stop }
    }

    /// Whether the run must end before an event at `now`.
    pub(crate) fn must_stop(&mut self, now: Time) -> bool {
        if now != self.now {
            (self.now, self.events) = (now, 0);
        }
        self.events += 1;
        // The load nearly always hits the cache.
        self.events > self.limit || self.stop.load(Ordering::Relaxed)
    }

    /// The error of a run that ended early.
    pub(crate) fn error(&self) -> SimError {
        if self.events <= self.limit {
            return SimError::Stopped;
        }
        SimError::Stuck { at: self.now, events: self.limit, policy: self.policy.clone() }
    }
}
