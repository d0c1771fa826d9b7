//! Events of a run, as the event queue holds them, and packets that reach the server.
//!
//! Does not contain their effects.

use crate::requests::RequestId;
use leeward_core::server::{Feedback, Outcome};

/// An event of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A message reaches the server.
    PacketArrived(Packet),
    /// A response or drop reaches its client.
    Reply(RequestId, Outcome, Feedback),
    /// An explicit credit reaches its client.
    Credit(u32, Feedback),
    /// A core has finished its current step.
    Core(u32),
    /// A request's wait for a lock reaches its time limit; the number identifies the wait.
    LockTimeout(RequestId, u32),
    /// A request's wait without a core ends.
    WaitEnded(RequestId),
    /// A client's timer fires.
    Timer(u32),
    /// The controller's slow half runs.
    Tick,
    /// The allocator runs.
    Allocate,
    /// A granted core becomes usable.
    Granted(u32),
    /// A searching core finds work or gives up. The number tells an outdated event from the current
    /// one.
    SearchStep(u32, u32),
    /// The measurement begins.
    WarmedUp,
    /// An observed window ends.
    Observe,
    /// A window of the time series ends.
    Window,
}

/// A message that has reached the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet {
    /// A request.
    Request {
        /// Which request.
        request: RequestId,
        /// Its session.
        session: u32,
    },
    /// A session's demand in a separate message.
    Demand {
        /// Which session.
        session: u32,
        /// Requests that wait at the client.
        demand: u32,
    },
}

impl Packet {
    /// The session that sent the message.
    pub(crate) fn session(self) -> u32 {
        match self {
            Packet::Request { session, .. } | Packet::Demand { session, .. } => session,
        }
    }
}
