//! Read-only view of a pair for tests: time, counters, ends of requests, frames of raw clients.

use super::client::RequestOutcome;
use super::rng::Rng;
use super::{ClientId, Pair};
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_host::RequestCounts;
use leeward_session::client::{ConnectionError, Phase};
use leeward_wire::ErrorCode;

impl Pair {
    /// Whether the server has stopped, with no answers pending.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Counters of requests so far.
    pub fn counts(&self) -> RequestCounts {
        let mut counts = self.core.counts();
        counts.connections = self.open.len() as u64;
        counts
    }

    /// Calls that were cancelled before their execution.
    pub fn cancelled(&self) -> u64 {
        self.core.tally.cancelled
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.core.gauges()
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A hash of all events: equal for equal seeds and equal actions.
    pub fn trace(&self) -> u64 {
        self.event_queue.hash()
    }

    /// The run's random numbers, for scenarios that are drawn from the same seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// End of an honest client's request.
    ///
    /// # Panics
    /// For a raw client, or an unknown request.
    pub fn outcome(&self, client: ClientId, request: usize) -> Option<&RequestOutcome> {
        self.honest(client).outcomes[request].as_ref()
    }

    /// Ends of an honest client's requests, in the order of submission.
    ///
    /// # Panics
    /// For a raw client.
    pub fn outcomes(&self, client: ClientId) -> &[Option<RequestOutcome>] {
        &self.honest(client).outcomes
    }

    /// Latency of each completed request of an honest client from its issue, in the order of
    /// completion.
    ///
    /// # Panics
    /// For a raw client.
    pub fn latencies(&self, client: ClientId) -> &[Nanos] {
        &self.honest(client).latencies
    }

    /// Requests of an honest client without an end.
    ///
    /// # Panics
    /// For a raw client.
    pub fn open_requests(&self, client: ClientId) -> usize {
        self.honest(client).open
    }

    /// Phase of an honest client's connection.
    ///
    /// # Panics
    /// For a raw client.
    pub fn phase(&self, client: ClientId) -> Phase {
        self.honest(client).connection.phase()
    }

    /// Error that ended an honest client's connection.
    pub fn error(&self, client: ClientId) -> Option<&ConnectionError> {
        self.links[client.0].error.as_ref()
    }

    /// Takes the next frame that a raw client has received, as text.
    pub fn try_receive(&mut self, client: ClientId) -> Option<String> {
        self.raw_mut(client).frames.pop_front()
    }

    /// Whether a raw client has seen the end of its stream.
    pub fn is_eof(&self, client: ClientId) -> bool {
        self.raw(client).is_eof
    }

    /// The newest window of a raw client; `None` if windows do not bind.
    pub fn window(&self, client: ClientId) -> Option<u32> {
        let raw = self.raw(client);
        raw.window_binds.then_some(raw.window)
    }

    /// Answers that a raw client has received.
    pub fn answers(&self, client: ClientId) -> u64 {
        self.raw(client).answers
    }

    /// Reason for which the server has closed a client's connection.
    pub fn close_reason(&self, client: ClientId) -> Option<&(ErrorCode, String)> {
        self.links[client.0].close_reason.as_ref()
    }

    /// Whether the server still has its end of a client's connection.
    pub fn is_open(&self, client: ClientId) -> bool {
        self.links[client.0].server.is_some()
    }

    /// Calls of a client that its server has not answered.
    pub fn unanswered(&self, client: ClientId) -> usize {
        self.links[client.0].server.as_ref().map_or(0, |end| end.connection.unanswered())
    }
}
