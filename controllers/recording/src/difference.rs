//! First difference between a replay's decisions and the recorded ones.

use super::entry::{Entry, SessionCall};
use leeward_core::server::{CoreId, SessionSlot};
use leeward_core::units::{Nanos, Time};
use std::fmt;

/// The first decision that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Number of the entry, from 1.
    pub entry: u64,
    /// Time of the call.
    pub at: Time,
    /// Core of the call; `None` for the slow half.
    pub core: Option<CoreId>,
    /// Session of the call, and its number among the sessions of this slot (from 1); `None` if the
    /// call concerns no session.
    pub session: Option<(SessionSlot, u32)>,
    /// The call.
    pub call: &'static str,
    /// Input of the call to the controller.
    pub input: String,
    /// Name of the part that differs.
    pub part: &'static str,
    /// Recorded value.
    pub recorded: String,
    /// Replayed value.
    pub replayed: String,
}

impl Difference {
    pub(super) fn new(
        position: (u64, Time, u32),
        entry: &Entry,
        name: &'static str,
        recorded: String,
        replayed: String,
    ) -> Self {
        let (number, at, generation) = position;
        let (core, session, call, text) = match entry {
            Entry::Session(entry) => {
                let more = match entry.call {
                    SessionCall::Request(event) => format!(
                        ", priority {}, queueing delay {}, random bits {:#x}",
                        event.priority.level(),
                        event.delay,
                        event.random
                    ),
                    SessionCall::Reply(event) => format!(", {} in the server", event.sojourn),
                    _ => String::new(),
                };
                let text = format!("{} pending, demand {}{more}", entry.pending, entry.demand);
                (Some(entry.core), Some((entry.slot, generation)), entry.call.name(), text)
            }
            Entry::Dequeue { core, waited, .. } => (Some(*core), None, "execute", format!("waited {waited}")),
            Entry::NextToWake { core, random, .. } => {
                (Some(*core), None, "next to wake", format!("random bits {random:#x}"))
            }
            Entry::Tick { signals, .. } => {
                let text = format!(
                    "packet delay {}, run delay {}, {} arrivals, {} completions, {} drops",
                    signals.packet_delay, signals.run_delay, signals.arrivals, signals.completions, signals.rejections
                );
                (None, None, "tick", text)
            }
            Entry::CoreGrant { event, .. } => {
                (None, None, "cores granted", format!("{} of now {}", event.granted, event.total))
            }
            Entry::Downstream { event, .. } => {
                let text = format!("{} credits for {} calls per request", event.credits, event.calls_per_request);
                (None, None, "downstream", text)
            }
            Entry::Threading { signals, .. } => {
                let text = format!(
                    "{} arrivals, offered {:.0}/s, oldest {}, {} dropped, under {}",
                    signals.arrivals.total(),
                    signals.offered.0,
                    signals.oldest_wait,
                    signals.rejected,
                    signals.current
                );
                (None, None, "threading", text)
            }
        };
        Difference { entry: number, at, core, session, call, input: text, part: name, recorded, replayed }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} at {}", self.entry, Nanos(self.at.0))?;
        if let Some(core) = self.core {
            write!(f, ", core {}", core.0)?;
        }
        if let Some((slot, generation)) = self.session {
            write!(f, ", session {} (number {generation} in that place)", slot.0)?;
        }
        let Difference { call, input: text, part: name, recorded, replayed, .. } = self;
        write!(f, ": {call} ({text}): the {name} was {recorded} and is {replayed}")
    }
}
