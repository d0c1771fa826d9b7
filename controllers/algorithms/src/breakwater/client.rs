//! Breakwater's client half: sends while fewer requests are outstanding than the window allows
//! (Breakwater §3.3).

use super::config::{Config, DemandTracking, PoolSignal};
use leeward_core::client::{ClientHalf, Gate, Reply};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// Divisor of the objective that gives the shortest wait for a credit. A server that reports nearly
/// all of the objective as its own still has some requests to choose from.
const MIN_WAIT_DIVISOR: u64 = 32;

/// Client half of one session.
#[derive(Debug)]
pub struct Client {
    credits: bool,
    announces_demand: bool,
    /// As published: the server has sent nothing yet. It learns of a session by its demand.
    is_unregistered: bool,
    window: u32,
    /// The objective less the network's round trip, if the server reports its sojourn time.
    deadline: Option<Nanos>,
    max_wait: Nanos,
}

impl Client {
    /// A client that holds no credit yet.
    pub fn new(config: &Config) -> Self {
        Client {
            credits: config.credits,
            announces_demand: config.credits && config.demand == DemandTracking::Synchronization,
            is_unregistered: config.credits && config.version.is_published(),
            window: 0,
            deadline: (config.signal == PoolSignal::Auto).then_some(config.deadline),
            max_wait: Nanos::MAX,
        }
    }

    /// Applies the window and the sojourn time from the server's feedback.
    fn apply_feedback(&mut self, feedback: &Feedback) {
        self.is_unregistered = false;
        self.window = feedback.window.0;
        if let Some(deadline) = self.deadline {
            self.max_wait = deadline.saturating_sub(Nanos(feedback.custom)).max(deadline / MIN_WAIT_DIVISOR);
        }
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        // Credits revoked too late leave a window below the outstanding requests. The client then
        // waits.
        if !self.credits || outstanding < self.window { Gate::Open } else { Gate::Closed }
    }

    fn max_wait(&self) -> Nanos {
        self.max_wait
    }

    fn reply(&mut self, event: &Reply) {
        self.apply_feedback(&event.feedback);
    }

    fn credit(&mut self, _: Time, feedback: &Feedback) {
        self.apply_feedback(feedback);
    }

    fn announces_demand(&self) -> bool {
        self.announces_demand || self.is_unregistered
    }
}
