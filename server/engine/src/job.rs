//! Requests on their way from a connection to the core that executes them. Never here: what a
//! request says.

use leeward_core::units::Time;

/// A connection's place on its core, and which of the place's successive connections is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    /// The place. It is also the slot of the connection's session.
    pub slot: u32,
    /// How many connections the place has had before.
    pub generation: u32,
}

/// Where a call came from, and its end goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyAddress {
    /// The core that owns the connection.
    pub(crate) core: usize,
    pub(crate) connection: ConnectionId,
}

/// An admitted request in a run queue.
pub struct Job<C> {
    pub(crate) reply_to: ReplyAddress,
    pub(crate) arrival: Time,
    /// When it was put into the queue.
    pub(crate) queued: Time,
    pub(crate) is_admitted: bool,
    pub(crate) call: C,
}
