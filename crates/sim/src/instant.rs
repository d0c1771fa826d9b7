//! Bound on the events of one instant: events that only cause each other would keep a run there for ever.

use crate::SimError;
use crate::config::SimConfig;
use leeward_control::units::Time;

/// Events that any run may have at one instant.
const ANY: u64 = 1_000_000;
/// Events besides per client: all may time out, be answered and send at once.
const PER_CLIENT: u64 = 64;

/// The events of the current instant, counted.
#[derive(Clone, Debug)]
pub(crate) struct Instant {
    now: Time,
    events: u64,
    most: u64,
    policy: String,
}

impl Instant {
    /// For a run of `config` under the controller called `algorithm`.
    pub(crate) fn new(config: &SimConfig, algorithm: &str) -> Self {
        let policy = match &config.server.scheduling {
            Some(scheduling) => format!("allocator `{}`", scheduling.allocator),
            None => format!("controller `{algorithm}`"),
        };
        let most = ANY + PER_CLIENT * u64::from(config.workload.clients);
        Instant { now: Time::ZERO, events: 0, most, policy }
    }

    /// Whether another event at `now` is one too many.
    pub(crate) fn is_stuck(&mut self, now: Time) -> bool {
        if now != self.now {
            (self.now, self.events) = (now, 0);
        }
        self.events += 1;
        self.events > self.most
    }

    /// The error of a run that is stuck.
    pub(crate) fn error(&self) -> SimError {
        SimError::Stuck { at: self.now, events: self.most, policy: self.policy.clone() }
    }
}
