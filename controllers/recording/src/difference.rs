//! Where a replay first decides otherwise than the recording.

use super::entry::{Entry, SessionCall};
use leeward_core::server::{CoreId, SessionSlot};
use leeward_core::units::{Nanos, Time};
use std::fmt;

/// The first decision that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which entry, from 1.
    pub entry: u64,
    /// When the call was made.
    pub at: Time,
    /// On which core; `None` for the slow half.
    pub core: Option<CoreId>,
    /// About which session, and the how manieth in its place it is (from 1); `None` if the call is about none.
    pub session: Option<(SessionSlot, u32)>,
    /// The call.
    pub call: &'static str,
    /// Input of the call on the controller.
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
        place: (u64, Time, u32),
        entry: &Entry,
        what: &'static str,
        recorded: String,
        replayed: String,
    ) -> Self {
        let (number, at, generation) = place;
        let (core, session, call, told) = match entry {
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
                let told = format!("{} pending, demand {}{more}", entry.pending, entry.demand);
                (Some(entry.core), Some((entry.slot, generation)), entry.call.name(), told)
            }
            Entry::Dequeue { core, waited, .. } => (Some(*core), None, "execute", format!("waited {waited}")),
            Entry::NextToWake { core, random, .. } => {
                (Some(*core), None, "next to wake", format!("random bits {random:#x}"))
            }
            Entry::Tick { signals, .. } => {
                let told = format!(
                    "packet delay {}, run delay {}, {} arrivals, {} completions, {} drops",
                    signals.packet_delay, signals.run_delay, signals.arrivals, signals.completions, signals.rejections
                );
                (None, None, "tick", told)
            }
            Entry::CoreGrant { event, .. } => {
                (None, None, "cores granted", format!("{} of now {}", event.granted, event.total))
            }
            Entry::Downstream { event, .. } => {
                let told = format!("{} credits for {} calls per request", event.credits, event.calls_per_request);
                (None, None, "downstream", told)
            }
            Entry::Threading { signals, .. } => {
                let told = format!(
                    "{} arrivals, offered {:.0}/s, oldest {}, {} dropped, under {}",
                    signals.arrivals.total(),
                    signals.offered.0,
                    signals.oldest_wait,
                    signals.rejected,
                    signals.current
                );
                (None, None, "threading", told)
            }
        };
        Difference { entry: number, at, core, session, call, input: told, part: what, recorded, replayed }
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
        let Difference { call, input: told, part: what, recorded, replayed, .. } = self;
        write!(f, ": {call} ({told}): the {what} was {recorded} and is {replayed}")
    }
}
