//! Breakwater's client: sends while fewer requests are out than the window allows (Breakwater §3.3).

use super::config::{Config, DemandTracking, PoolSignal};
use leeward_core::client::{ClientHalf, Gate, Reply};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// The least part of the objective for which a request may wait for its credit, one in so many: a server that takes nearly all of
/// the objective for itself still has some to choose from.
const MIN_WAIT_DIVISOR: u64 = 32;

/// Client half of one session.
#[derive(Debug)]
pub struct Client {
    credits: bool,
    announces_demand: bool,
    /// As published: nothing has come from the server yet, which hears of a session by its demand.
    is_unregistered: bool,
    window: u32,
    /// The objective less the network's round trip, if the server says what it takes of it.
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

    /// Takes in what the server says.
    fn apply_feedback(&mut self, feedback: &Feedback) {
        self.is_unregistered = false;
        self.window = feedback.window.0;
        if let Some(late) = self.deadline {
            self.max_wait = late.saturating_sub(Nanos(feedback.custom)).max(late / MIN_WAIT_DIVISOR);
        }
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        // A window below what is out already (credits revoked too late) is no debt: the client just waits.
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
