//! Requests between a connection and the core that executes them. Does not contain a request's
//! content.

use leeward_core::units::Time;

/// A connection's slot on its core, and the generation that tells the slot's connections apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    /// Slot index. The connection's session has the same slot.
    pub slot: u32,
    /// Number of connections that the slot had before.
    pub generation: u32,
}

/// Core and connection that get a call's response.
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
    /// Time at which it was queued.
    pub(crate) queued: Time,
    pub(crate) is_admitted: bool,
    pub(crate) call: C,
}
