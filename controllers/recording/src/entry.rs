//! An entry of a recording: one call of a plant to a controller's server side, with its answer.

use leeward_core::server::{
    Arrival, CoreGrant, CoreId, Departure, Downstream, Feedback, Gauges, Outcome, Registration, SessionSlot, Signals,
    Verdict,
};
use leeward_core::units::{CreditId, Credits, Method, Nanos, Time};
use leeward_threading::{ThreadSignals, ThreadingSetup};
use std::fmt;

/// A call with its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "an entry allocates nothing, and only the part that is used is written")]
pub enum Entry {
    /// A call about a session.
    Session(SessionEntry),
    /// [`leeward_core::server::Admission::execute`]: the controller is not told which request it is.
    Dequeue {
        /// The core that was asked.
        core: CoreId,
        /// How long the request had waited.
        waited: Nanos,
        /// Verdict of the controller.
        verdict: Verdict,
    },
    /// [`leeward_core::server::Admission::next_to_wake`].
    NextToWake {
        /// The core that was asked.
        core: CoreId,
        /// The random bits it was given.
        random: u64,
        /// The session it named.
        chosen: Option<SessionSlot>,
    },
    /// [`leeward_core::server::ControlLoop::tick`].
    Tick {
        /// Signals of the tick.
        signals: Signals,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_core::server::ControlLoop::cores_granted`].
    CoreGrant {
        /// Event of the grant.
        event: CoreGrant,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_core::server::ControlLoop::downstream`].
    Downstream {
        /// Credits of the servers behind.
        event: Downstream,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_threading::ThreadingPolicy::decide`].
    Threading {
        /// Signals of the decision.
        signals: ThreadSignals,
        /// Setup that the policy wanted, if another.
        wanted: Option<ThreadingSetup>,
        /// When it wanted to be asked again.
        timeout: Time,
    },
}

/// A call about a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionEntry {
    /// The core that owns the session.
    pub core: CoreId,
    /// The session's place there.
    pub slot: SessionSlot,
    /// [`leeward_core::server::Session::pending`] as the plant had set it for the call.
    pub pending: u32,
    /// [`leeward_core::server::Session::demand`] as the plant had set it for the call.
    pub demand: u32,
    /// Which call.
    pub call: SessionCall,
    /// Answer of the controller.
    pub answer: Answer,
    /// [`leeward_core::server::Session::window`] after the call.
    pub window: Credits,
    /// Method of the request that a reply answers; the default one of every other call.
    pub method: Method,
    /// The words of the session's [`leeward_core::server::SessionState`] after the call, if the call has changed them.
    pub custom: Option<[u64; 2]>,
}

/// The calls of [`leeward_core::server::Admission`] that are about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCall {
    /// The session registered.
    Open(Registration),
    /// A request was received and parsed.
    Request(Arrival),
    /// A response or drop is about to leave.
    Reply(Departure),
    /// An explicit demand message arrived.
    Demand(Time),
    /// The explicit credit for a session that was named as next.
    Wake(Time),
    /// The session is gone.
    Close(Time),
}

impl SessionCall {
    /// Time of the call.
    pub fn now(&self) -> Time {
        match self {
            SessionCall::Open(event) => event.now,
            SessionCall::Request(event) => event.now,
            SessionCall::Reply(event) => event.now,
            SessionCall::Demand(now) | SessionCall::Wake(now) | SessionCall::Close(now) => *now,
        }
    }

    /// Its name for people.
    pub fn name(&self) -> &'static str {
        match self {
            SessionCall::Open(_) => "open",
            SessionCall::Request(_) => "request",
            SessionCall::Reply(Departure { outcome: Outcome::Completed, .. }) => "reply (completed)",
            SessionCall::Reply(Departure { outcome: Outcome::Rejected, .. }) => "reply (dropped)",
            SessionCall::Demand(_) => "demand",
            SessionCall::Wake(_) => "wake",
            SessionCall::Close(_) => "close",
        }
    }
}

/// Answer of a controller to a call about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the call has no answer, or a demand message none that is sent.
    Nothing,
    /// To a request.
    Verdict(Verdict),
    /// Feedback for the client.
    Feedback(Feedback),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Nothing => f.write_str("nothing"),
            Answer::Verdict(Verdict::Admit) => f.write_str("admit"),
            Answer::Verdict(Verdict::Reject(reason)) => write!(f, "reject for {reason:?}"),
            Answer::Feedback(Feedback { window, threshold, custom, credit }) => {
                write!(f, "window {}, threshold {}, word {custom}", window.0, threshold.level())?;
                if *credit == CreditId::NONE { Ok(()) } else { write!(f, ", grant {}", credit.0) }
            }
        }
    }
}

impl Entry {
    /// When the call was made, where it tells.
    pub fn now(&self) -> Option<Time> {
        match self {
            Entry::Session(entry) => Some(entry.call.now()),
            Entry::Dequeue { .. } | Entry::NextToWake { .. } | Entry::Downstream { .. } => None,
            Entry::Tick { signals, .. } => Some(signals.now),
            Entry::CoreGrant { event, .. } => Some(event.now),
            Entry::Threading { signals, .. } => Some(signals.now),
        }
    }
}
