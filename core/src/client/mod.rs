//! The client's side of a controller ([`ClientHalf`]), and the client around it ([`Client`]): a bounded queue with
//! expiry that lets requests out when the half's gate is open. Sans I/O: decisions leave through an [`Outlet`].

pub mod params;
mod queue;
mod shell;

pub use queue::BoundedQueue;
pub use shell::{Client, ClientSink, Header, LocalOutcome, LocalReason};

use crate::server::{Feedback, Outcome};
use crate::units::{Nanos, Priority, Time};

/// Whether the next queued request may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Gate {
    /// The next request may leave.
    Open,
    /// Not before a message from the server changes something.
    Closed,
    /// Not before this time (a rate limit).
    OpensAt(Time),
}

/// Verdict of the half on a request that the application has just issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClientVerdict {
    /// Queue it, or send it if the gate is open.
    Accept,
    /// End it here: the server would drop it.
    Reject,
}

/// The application issued a request.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// Now.
    pub now: Time,
    /// How important it is.
    pub priority: Priority,
    /// 64 random bits.
    pub random: u64,
}

/// A response or a drop came back.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Now.
    pub now: Time,
    /// Whether the server served it.
    pub outcome: Outcome,
    /// Time since the request left this client: network and server, not this client's queue.
    pub round_trip: Nanos,
    /// Feedback that the server sent along.
    pub feedback: Feedback,
}

/// The client half of an algorithm: decides what may leave. One value per session; not shared between threads.
pub trait ClientHalf: Send {
    /// Judges a request before it is queued.
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        let _ = event;
        ClientVerdict::Accept
    }

    /// Whether one more request may leave now; `outstanding` have left and are unanswered. Asked before each send; the
    /// answer may depend on time but asking changes nothing that an observer could see.
    fn gate(&mut self, now: Time, outstanding: u32) -> Gate;

    /// The longest that a request may wait at this client: whatever waits longer could not be in time any more. The client's own
    /// [`ClientConfig::max_delay`] holds as well.
    fn max_wait(&self) -> Nanos {
        Nanos::MAX
    }

    /// A request has just left.
    fn on_sent(&mut self, now: Time) {
        let _ = now;
    }

    /// A response or a drop came back.
    fn reply(&mut self, event: &Reply) {
        let _ = event;
    }

    /// An explicit credit message came.
    fn credit(&mut self, now: Time, feedback: &Feedback) {
        let _ = (now, feedback);
    }

    /// Whether this algorithm tells the server of every change of demand in a message of its own (demand
    /// synchronization, Breakwater Fig. 8).
    fn announces_demand(&self) -> bool {
        false
    }
}

/// The client around the half: how much may wait there and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Requests that may wait for permission to leave; the oldest is dropped for one more.
    pub queue: usize,
    /// A request that has waited this long without leaving expires.
    pub max_delay: Nanos,
    /// Requests that may be unanswered at once, whatever the half allows: the connection's back-pressure.
    pub max_outstanding: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        // Queue: the published client's length. Outstanding: 256 requests of some hundred bytes fill a default socket
        // buffer; without any such bound an uncontrolled client would need unbounded memory.
        ClientConfig { queue: 16, max_delay: Nanos::MAX, max_outstanding: 256 }
    }
}

/// A controller's client side.
pub struct ClientParts {
    /// Decides.
    pub half: Box<dyn ClientHalf>,
    /// Bounds the queue around it.
    pub config: ClientConfig,
}
