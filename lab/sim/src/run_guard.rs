//! Ends of a run before its time: too many events at one instant, which only cause each other and would keep it there for ever, or
//! somebody's wish.

use crate::SimError;
use crate::config::SimConfig;
use leeward_core::units::Time;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events that any run may have at one instant.
const ANY: u64 = 1_000_000;
/// Events besides per client: all may time out, be answered and send at once.
const PER_CLIENT: u64 = 64;

/// The events of the current instant, counted, and the wish to stop.
#[derive(Clone, Debug)]
pub(crate) struct RunGuard<'a> {
    now: Time,
    events: u64,
    limit: u64,
    policy: String,
    stop: &'a AtomicBool,
}

impl<'a> RunGuard<'a> {
    /// For a run of `config` under the controller called `algorithm`, until `stop` is set.
    pub(crate) fn new(config: &SimConfig, algorithm: &str, stop: &'a AtomicBool) -> Self {
        let policy = match &config.server.scheduling {
            Some(scheduling) => format!("allocator `{}`", scheduling.allocator),
            None => format!("controller `{algorithm}`"),
        };
        let most = ANY + PER_CLIENT * u64::from(config.workload.clients);
        RunGuard { now: Time::ZERO, events: 0, limit: most, policy, stop }
    }

    /// Whether another event at `now` is one too many: too many for the instant, or after the wish to stop.
    pub(crate) fn must_stop(&mut self, now: Time) -> bool {
        if now != self.now {
            (self.now, self.events) = (now, 0);
        }
        self.events += 1;
        // A load that nearly always finds the same line of the cache.
        self.events > self.limit || self.stop.load(Ordering::Relaxed)
    }

    /// The error of a run that is over before its end.
    pub(crate) fn error(&self) -> SimError {
        if self.events <= self.limit {
            return SimError::Stopped;
        }
        SimError::Stuck { at: self.now, events: self.limit, policy: self.policy.clone() }
    }
}
