//! Breakwater's client: sends while fewer requests are out than the window allows (Breakwater §3.3).

use super::config::{Config, Demand, Signal};
use leeward_core::client::{ClientHalf, Gate, Reply};
use leeward_core::server::Feedback;
use leeward_core::units::{Nanos, Time};

/// The least part of the objective for which a request may wait for its credit, one in so many: a server that takes nearly all of
/// the objective for itself still has some to choose from.
const LEAST_PATIENCE: u64 = 32;

/// Client half of one session.
#[derive(Debug)]
pub struct Client {
    credits: bool,
    announces: bool,
    /// As published: nothing has come from the server yet, which hears of a session by its demand.
    registers: bool,
    window: u32,
    /// The objective less the network's round trip, if the server says what it takes of it.
    late: Option<Nanos>,
    patience: Nanos,
}

impl Client {
    /// A client that holds no credit yet.
    pub fn new(config: &Config) -> Self {
        Client {
            credits: config.credits,
            announces: config.credits && config.demand == Demand::Synchronization,
            registers: config.credits && config.version.is_published(),
            window: 0,
            late: (config.signal == Signal::Auto).then_some(config.late),
            patience: Nanos::MAX,
        }
    }

    /// Takes in what the server says.
    fn hear(&mut self, feedback: &Feedback) {
        self.registers = false;
        self.window = feedback.window.0;
        if let Some(late) = self.late {
            self.patience = late.saturating_sub(Nanos(feedback.custom)).max(late / LEAST_PATIENCE);
        }
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        // A window below what is out already (credits revoked too late) is no debt: the client just waits.
        if !self.credits || outstanding < self.window { Gate::Open } else { Gate::Closed }
    }

    fn patience(&self) -> Nanos {
        self.patience
    }

    fn reply(&mut self, event: &Reply) {
        self.hear(&event.feedback);
    }

    fn credit(&mut self, _: Time, feedback: &Feedback) {
        self.hear(feedback);
    }

    fn announces_demand(&self) -> bool {
        self.announces || self.registers
    }
}
