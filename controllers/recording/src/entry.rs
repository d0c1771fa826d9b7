//! Entry of a recording: one call of a plant to a controller's server side, with its answer.

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
    /// [`leeward_core::server::Admission::on_dequeue`]: the controller does not learn which request
    /// it is.
    Dequeue {
        /// The core of the call.
        core: CoreId,
        /// Waiting time of the request.
        waited: Nanos,
        /// Verdict of the controller.
        verdict: Verdict,
    },
    /// [`leeward_core::server::Admission::next_to_wake`].
    NextToWake {
        /// The core of the call.
        core: CoreId,
        /// The random bits of the call.
        random: u64,
        /// The session that the controller chose.
        chosen: Option<SessionSlot>,
    },
    /// [`leeward_core::server::ControlLoop::tick`].
    Tick {
        /// Signals of the tick.
        signals: Signals,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_core::server::ControlLoop::on_core_grant`].
    CoreGrant {
        /// Event of the grant.
        event: CoreGrant,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_core::server::ControlLoop::set_downstream`].
    Downstream {
        /// Credits of the downstream servers.
        event: Downstream,
        /// The controller's state afterwards.
        gauges: Gauges,
    },
    /// [`leeward_threading::ThreadingPolicy::decide`].
    Threading {
        /// Signals of the decision.
        signals: ThreadSignals,
        /// Setup that the policy chose, if not the current one.
        wanted: Option<ThreadingSetup>,
        /// Time of the policy's next call.
        timeout: Time,
    },
}

/// A call about a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionEntry {
    /// The core that owns the session.
    pub core: CoreId,
    /// The session's slot there.
    pub slot: SessionSlot,
    /// [`leeward_core::server::Session::pending`] as the plant had set it for the call.
    pub pending: u32,
    /// [`leeward_core::server::Session::demand`] as the plant had set it for the call.
    pub demand: u32,
    /// The call.
    pub call: SessionCall,
    /// Answer of the controller.
    pub answer: Answer,
    /// [`leeward_core::server::Session::window`] after the call.
    pub window: Credits,
    /// Method of the request that a reply answers; the default method for every other call.
    pub method: Method,
    /// The words of the session's [`leeward_core::server::SessionState`] after the call, if the
    /// call has changed them.
    pub custom: Option<[u64; 2]>,
}

/// The calls of [`leeward_core::server::Admission`] that concern a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCall {
    /// The session registered.
    Open(Registration),
    /// A request was received and parsed.
    Request(Arrival),
    /// A response or rejection is about to leave.
    Reply(Departure),
    /// An explicit demand message arrived.
    Demand(Time),
    /// The explicit credit for the session chosen as next.
    Wake(Time),
    /// The session closed.
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

    /// Returns the call's name for people.
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
    /// None: the call has no answer, or a demand message gets none.
    Nothing,
    /// Verdict on a request.
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
    /// Time of the call, if the entry has one.
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
