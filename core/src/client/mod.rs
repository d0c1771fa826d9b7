//! The client's side of a controller ([`ClientHalf`]), and the client around it ([`Client`]): a
//! bounded queue with expiry that sends requests while the half's gate is open. Sans I/O: decisions
//! leave through a [`ClientSink`].

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
    /// The next request must wait for a message from the server.
    Closed,
    /// The next request may leave at this time (a rate limit).
    OpensAt(Time),
}

/// Verdict of the client half on a request that the application has just issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClientVerdict {
    /// Queue the request, or send it if the gate is open.
    Accept,
    /// End the request here: the server would reject it.
    Reject,
}

/// Event: the application issued a request.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// Now.
    pub now: Time,
    /// Priority of the request.
    pub priority: Priority,
    /// 64 random bits.
    pub random: u64,
}

/// Event: a response or a rejection arrived.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Now.
    pub now: Time,
    /// Whether the server served it.
    pub outcome: Outcome,
    /// Time since the request left this client: network and server, not this client's queue.
    pub round_trip: Nanos,
    /// The server's feedback in the reply.
    pub feedback: Feedback,
}

/// Client half of an algorithm: decides which requests may leave. One value per session; not shared
/// between threads.
pub trait ClientHalf: Send {
    /// Judges a request before it is queued.
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        let _ = event;
        ClientVerdict::Accept
    }

    /// Whether one more request may leave now, with `outstanding` requests sent and unanswered. The
    /// client calls this before each send. The result may depend on time, but the call has no
    /// visible effect.
    fn gate(&mut self, now: Time, outstanding: u32) -> Gate;

    /// Longest wait of a request at this client; a longer wait could not end in time. The client's
    /// own [`ClientConfig::max_delay`] holds as well.
    fn max_wait(&self) -> Nanos {
        Nanos::MAX
    }

    /// Called when a request was sent.
    fn on_sent(&mut self, now: Time) {
        let _ = now;
    }

    /// Called when a response or a rejection arrived.
    fn reply(&mut self, event: &Reply) {
        let _ = event;
    }

    /// Called when an explicit credit message arrived.
    fn credit(&mut self, now: Time, feedback: &Feedback) {
        let _ = (now, feedback);
    }

    /// Whether this algorithm reports each change of demand to the server in a separate message
    /// (demand synchronization, Breakwater Fig. 8).
    fn announces_demand(&self) -> bool {
        false
    }
}

/// Limits of the client around the half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Requests that may wait to be sent; a further one makes the oldest end.
    pub queue: usize,
    /// Waiting time at which an unsent request expires.
    pub max_delay: Nanos,
    /// Requests that may be unanswered at once, even if the half allows more: the connection's
    /// back-pressure.
    pub max_outstanding: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        // Queue: the published client's length. Outstanding: 256 requests of some hundred bytes
        // fill a default socket buffer. Without such a bound an uncontrolled client would need
        // unbounded memory.
        ClientConfig { queue: 16, max_delay: Nanos::MAX, max_outstanding: 256 }
    }
}

/// A controller's client side.
pub struct ClientParts {
    /// Decides which requests may leave.
    pub half: Box<dyn ClientHalf>,
    /// Limits the queue around the half.
    pub config: ClientConfig,
}
