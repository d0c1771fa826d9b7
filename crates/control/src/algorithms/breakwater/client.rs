//! Breakwater's client: sends while fewer requests are out than the window allows (Breakwater §3.3).

use super::config::{Config, Demand};
use crate::client::{ClientHalf, Gate, Reply};
use crate::server::Feedback;
use crate::units::Time;

/// Client half of one session.
#[derive(Debug)]
pub struct Client {
    credits: bool,
    announces: bool,
    /// As published: nothing has come from the server yet, which hears of a session by its demand.
    registers: bool,
    window: u32,
}

impl Client {
    /// A client that holds no credit yet.
    pub fn new(config: &Config) -> Self {
        Client {
            credits: config.credits,
            announces: config.credits && config.demand == Demand::Synchronization,
            registers: config.credits && config.version.is_published(),
            window: 0,
        }
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        // A window below what is out already (credits revoked too late) is no debt: the client just waits.
        if !self.credits || outstanding < self.window { Gate::Open } else { Gate::Closed }
    }

    fn reply(&mut self, event: &Reply) {
        self.registers = false;
        self.window = event.feedback.window.0;
    }

    fn credit(&mut self, _: Time, feedback: &Feedback) {
        self.registers = false;
        self.window = feedback.window.0;
    }

    fn announces_demand(&self) -> bool {
        self.announces || self.registers
    }
}
