//! Events of a run, as its agenda holds them, and those that reach the server. Never here: what follows from them.

use crate::requests::RequestId;
use leeward_core::server::{Feedback, Outcome};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// This client issues a request.
    Issue(u32),
    /// A message reaches the server.
    PacketArrived(Packet),
    /// A response or drop reaches its client.
    Reply(RequestId, Outcome, Feedback),
    /// An explicit credit message reaches its client.
    Credit(u32, Feedback),
    /// A core has finished what it was busy with.
    Core(u32),
    /// A request has waited long enough for a lock: its wait of this number.
    LockTimeout(RequestId, u32),
    /// Arrival of what a request waits for without a core.
    WaitEnded(RequestId),
    /// A client's timer.
    Timer(u32),
    /// The controller's slow half is due.
    Tick,
    /// The allocator is due.
    Allocate,
    /// A granted core can be used.
    Granted(u32),
    /// A core that looks for work sees some, or gives up; the number tells an overtaken event from the valid one.
    SearchStep(u32, u32),
    /// The measured part begins.
    WarmedUp,
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
    /// A session's demand in a message of its own.
    Demand {
        /// Which session.
        session: u32,
        /// Requests that wait there.
        demand: u32,
    },
}

impl Packet {
    /// The session that it came from.
    pub(crate) fn session(self) -> u32 {
        match self {
            Packet::Request { session, .. } | Packet::Demand { session, .. } => session,
        }
    }
}
